"""Checks of the attributes that the policy gives to CEs and to classes of hosts."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Final

from pilotage.core.classads import parse_expression
from pilotage.core.errors import InvalidInput
from pilotage.core.glue import schema as glue
from pilotage.core.glue.information import Value
from pilotage.core.glue.schema import BY_NAME, EXPRESSIONS, FixedBy
from pilotage.core.plurals import plural
from pilotage.core.policy import toml
from pilotage.core.policy.ce_model import Ce, HostsEntry

_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,99}")
_RESERVED: Final = frozenset(
    {*("true", "false", "undefined", "error", "is", "isnt"), *("my", "self", "other", "target", "parent")}
)
_EXPRESSIONS: Final = frozenset(name.lower() for name in EXPRESSIONS)

_IDENTITIES: Final = frozenset({"glueceuniqueid", "ceid"})
_HOST_NAME: Final = r"[A-Za-z0-9](?:[A-Za-z0-9_.-]{0,252}[A-Za-z0-9])?"
_HOST: Final = re.compile(rf"(?:{_HOST_NAME}@)?{_HOST_NAME}")
_HOST_HINT: Final = 'name each host by itself, such as ["n1", "n2"], or QUEUE@HOST for Grid Engine'

AttributeMistake = tuple[tuple[str, ...], str, str]
"""The keys below the CE's table, the reason and a hint."""


def attribute_mistakes(ce_name: str, ce: Ce) -> Iterator[AttributeMistake]:
    """The mistakes in `attributes` and `hosts` of the CE `ce_name`, and in the times of its information."""
    for name, reason, hint in _mistakes(ce.attributes):
        yield ("attributes", name), reason, hint
    for name, value in ce.attributes.items():
        if name.lower() in _EXPRESSIONS and (reason := _expression_mistake(value)):
            yield ("attributes", name), f"{name} {reason}", 'as text: Requirements = "other.X == 1"'
        if name.lower() in _IDENTITIES and value != ce_name:
            reason = f"{name} must be the name of the CE in the policy"
            yield ("attributes", name), reason, f"name the CE so: {toml.table('ces', str(value))}"
    if 0 < ce.information_expiry < 2 * ce.information_period:
        reason = "information_expiry must be at least two information_period, or 0"
        yield ("information_expiry",), reason, "an answer would expire before the next one"
    seen: set[str] = set()
    for place, entry in enumerate(ce.hosts):
        here = ("hosts", str(place))
        for keys, reason, hint in _mistakes_in_class(entry):
            yield (*here, *keys), reason, hint
        names = [host.lower() for host in entry.hosts]
        if twice := next((host for host in names if host in seen or names.count(host) > 1), ""):
            yield (*here, "hosts"), f"the host {twice} is named twice", "a host is in one class"
        seen.update(names)


def _mistakes_in_class(entry: HostsEntry) -> Iterator[AttributeMistake]:
    for name, reason, hint in _mistakes(entry.attributes):
        yield ("attributes", name), reason, hint
    for name in entry.attributes:
        known = BY_NAME.get(name.lower())
        if name.lower() in _EXPRESSIONS or (known is not None and known.fixed_by is FixedBy.CE):
            hint = "set it in the attributes of the CE"
            yield ("attributes", name), f"{name} is no attribute of hosts", hint
    odd = next((host for host in entry.hosts if not _HOST.fullmatch(host)), None)
    if odd is not None:
        yield ("hosts",), f"{odd[:80]!r} is no name of a host", _HOST_HINT
    if entry.count and entry.hosts and entry.count != len(entry.hosts):
        reason = f"count is {entry.count}, but hosts has {plural(len(entry.hosts), 'name')}"
        yield ("count",), reason, "leave count out: the names are counted"


def _mistakes(attributes: Mapping[str, Value]) -> Iterator[tuple[str, str, str]]:
    """Names with a mistake, each with its reason and a hint."""
    spellings: dict[str, str] = {}
    for name, value in attributes.items():
        if not _NAME.fullmatch(name) or name.lower() in _RESERVED:
            yield name, f"{name!r} cannot be the name of an attribute", "letters, digits and `_`"
            continue
        if (other := spellings.setdefault(name.lower(), name)) != name:
            yield name, f"{name} has two values", f"it is the same attribute as {other}"
        if near := glue.nearest_name(name):
            yield name, f"the GLUE schema has no attribute {name}", f"did you mean {near}?"
        if reason := glue.mistake(name, value):
            yield name, reason, ""


def _expression_mistake(value: Value) -> str:
    if not isinstance(value, str):
        return "must be a ClassAd expression"
    try:
        parse_expression(value)
    except InvalidInput as error:
        return f"is no ClassAd expression: {error.message}"
    return ""
