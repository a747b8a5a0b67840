"""What differs between two policies, key by key."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

from pilotage.core.policy import toml
from pilotage.core.policy.parser import plain_of


@dataclass(frozen=True, slots=True)
class PolicyChange:
    key: str
    """Dotted, as TOML writes it; of an entry of a list of tables that of the list."""
    change: Literal["added", "removed", "changed"]
    before: Any = None
    after: Any = None


@dataclass(slots=True)
class _Flat:
    values: dict[str, Any]
    """By dotted key; a table without keys is an empty one."""
    entries: dict[str, list[dict[str, Any]]]
    """The lists of tables."""
    tables: set[str]


def changes(before: str, after: str) -> list[PolicyChange]:
    """By key; both must be TOML, though not valid policies: what was valid once may be so no longer."""
    old, new = _flat(plain_of(before)), _flat(plain_of(after))
    found = list(_values(old, new))
    for key in old.entries.keys() | new.entries.keys():
        left, right = old.entries.get(key, []), new.entries.get(key, [])
        found += [PolicyChange(key, "removed", one) for one in _without(left, right)]
        found += [PolicyChange(key, "added", None, one) for one in _without(right, left)]
    return sorted(found, key=lambda one: one.key)


def _values(old: _Flat, new: _Flat) -> Iterator[PolicyChange]:
    for key, value in old.values.items():
        if key not in new.values:
            if value != {} or key not in new.tables:
                yield PolicyChange(key, "removed", value)
        elif new.values[key] != value or type(new.values[key]) is not type(value):
            yield PolicyChange(key, "changed", value, new.values[key])
    for key, value in new.values.items():
        if key not in old.values and (value != {} or key not in old.tables):
            yield PolicyChange(key, "added", None, value)


def _without(some: list[dict[str, Any]], others: list[dict[str, Any]]) -> list[dict[str, Any]]:
    left = list(others)
    found = []
    for one in some:
        if one in left:
            left.remove(one)
        else:
            found.append(one)
    return found


def _flat(plain: dict[str, Any]) -> _Flat:
    flat = _Flat({}, {}, set())
    waiting: list[tuple[str, dict[str, Any]]] = [("", plain)]
    while waiting:
        prefix, table = waiting.pop()
        for name, value in table.items():
            key = f"{prefix}.{toml.key(name)}" if prefix else toml.key(name)
            if isinstance(value, dict):
                flat.tables.add(key)
                if value:
                    waiting.append((key, value))
                else:
                    flat.values[key] = {}
            elif isinstance(value, list) and value and all(isinstance(one, dict) for one in value):
                flat.entries[key] = value
            else:
                flat.values[key] = value
    return flat
