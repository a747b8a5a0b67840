"""Names in an expression that resemble a name of the GLUE schema and are not one."""

from __future__ import annotations

from pilotage.core.brokering.seen_attributes import attributes_of, shorten
from pilotage.core.classads import Expression
from pilotage.core.glue.schema import nearest_name

MOST = 5


def misspelt_names(expression: Expression) -> tuple[str, ...]:
    """A sentence for each: the name counts as unknown, so no CE refuses it, and no node ever satisfies it."""
    near = {
        attribute.name: nearest
        for attribute in attributes_of(expression)
        if (nearest := nearest_name(attribute.name))
    }
    return tuple(
        f"Requirements name {shorten(name)}, which the GLUE schema does not have: is {nearest} meant?"
        for name, nearest in list(near.items())[:MOST]
    )
