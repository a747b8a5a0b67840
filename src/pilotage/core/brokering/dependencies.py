"""The attributes that an expression refers to. Equal values of these give equal answers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from pilotage.core.classads import Attribute, Call, Expression
from pilotage.core.classads.functions_basic import VOLATILE
from pilotage.core.classads.tree import children

SCOPES: Final = frozenset({"my", "target", "other", "self", "parent", "root", "toplevel"})


@dataclass(frozen=True, slots=True)
class Dependencies:
    """The names may be more than an evaluation reads, and never fewer."""

    names: frozenset[str] = frozenset()
    """In lower case, of both ads."""
    needs_whole_ad: bool = False
    """It uses an ad as a value, so any attribute may count."""
    is_volatile: bool = False
    """It calls `time` or `random`, so an answer holds for one evaluation."""


def dependencies_of(expression: Expression) -> Dependencies:
    """Attributes named anywhere in the expression, also behind a dot: an inner ad may pass them on outwards."""
    names: set[str] = set()
    needs_whole_ad = is_volatile = False
    stack: list[tuple[Expression, bool]] = [(expression, False)]
    while stack:
        node, is_base = stack.pop()
        if isinstance(node, Attribute):
            names.add(node.key)
            if node.base is not None:
                stack.append((node.base, True))
            elif node.key in SCOPES and not is_base:
                needs_whole_ad = True
            continue
        if isinstance(node, Call) and node.key in VOLATILE:
            is_volatile = True
        stack.extend((below, False) for below in children(node))
    return Dependencies(frozenset(names), needs_whole_ad, is_volatile)
