"""Rules of a forward table against the complexes of a cell: why flags would not select the hosts that fit. Pure."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping
from typing import Final

from pilotage.core.forwarding.rules import ComplexRule, Rule
from pilotage.outside.batch.sge.queues import Complex

_TYPES: Final = {
    "INT": ("integer",),
    "BOOL": ("integer",),
    "TIME": ("integer",),
    "DOUBLE": ("integer", "real"),
    "MEMORY": ("megabytes", "integer"),
    "STRING": ("string",),
    "CSTRING": ("cstring",),
    "RESTRING": ("restring",),
}
"""The types of a rule that write values of a complex of this type."""


def mistakes_in_rules(rules: Mapping[str, Rule], complexes: Mapping[str, Complex]) -> Iterator[str]:
    """A sentence for each rule that the cell does not support."""
    for attribute, rule in rules.items():
        if isinstance(rule, ComplexRule) and (reason := _mistake(rule, complexes)):
            yield f"forward.{attribute}: {reason}"


def _mistake(rule: ComplexRule, complexes: Mapping[str, Complex]) -> str:
    known = complexes.get(rule.name)
    if known is None:
        full = next((known.name for known in complexes.values() if known.shortcut == rule.name), "")
        near = [full] if full else difflib.get_close_matches(rule.name, complexes, 1)
        return f"the cell has no complex {rule.name}" + (f"; did you mean {near[0]}?" if near else "")
    if not known.requestable:
        return f"the complex {rule.name} is not requestable: jobs that ask for it are refused"
    if known.consumable != "NO":
        return f"the complex {rule.name} is a consumable: each pilot would take a part of it"
    if known.relation != rule.relation:
        return f"the complex {rule.name} has the relation {known.relation}, not {rule.relation}"
    types = _TYPES.get(known.kind, ())
    if types and rule.type not in types:
        return f"the complex {rule.name} is of type {known.kind}: its rule ends with {types[0]}"
    return ""
