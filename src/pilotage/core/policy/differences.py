"""Differences between two policies, key by key."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

from pilotage.core.policy import toml
from pilotage.core.policy.parser import parse_toml


@dataclass(frozen=True, slots=True)
class PolicyDifference:
    key: str
    """The dotted key in TOML syntax. For an entry of a list of tables: the key of the list."""
    change: Literal["added", "removed", "changed"]
    before: Any = None
    after: Any = None


@dataclass(slots=True)
class _FlatPolicy:
    values: dict[str, Any]
    """Dotted key → value. The value of an empty table is {}."""
    entries: dict[str, list[dict[str, Any]]]
    """Dotted key → the entries of a list of tables."""
    tables: set[str]


def changes(before: str, after: str) -> list[PolicyDifference]:
    """The differences, sorted by key. Both texts must be TOML, but need not be valid policies of this version."""
    old, new = _flat(parse_toml(before)), _flat(parse_toml(after))
    differences = list(_value_changes(old, new))
    for key in old.entries.keys() | new.entries.keys():
        left, right = old.entries.get(key, []), new.entries.get(key, [])
        differences += [PolicyDifference(key, "removed", entry) for entry in _without(left, right)]
        differences += [PolicyDifference(key, "added", None, entry) for entry in _without(right, left)]
    return sorted(differences, key=lambda difference: difference.key)


def _value_changes(old: _FlatPolicy, new: _FlatPolicy) -> Iterator[PolicyDifference]:
    for key, value in old.values.items():
        if key not in new.values:
            if value != {} or key not in new.tables:
                yield PolicyDifference(key, "removed", value)
        elif new.values[key] != value or type(new.values[key]) is not type(value):
            yield PolicyDifference(key, "changed", value, new.values[key])
    for key, value in new.values.items():
        if key not in old.values and (value != {} or key not in old.tables):
            yield PolicyDifference(key, "added", None, value)


def _without(entries: list[dict[str, Any]], others: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The entries that are not in `others`; each entry of `others` cancels one equal entry."""
    unmatched = list(others)
    remaining = []
    for entry in entries:
        if entry in unmatched:
            unmatched.remove(entry)
        else:
            remaining.append(entry)
    return remaining


def _flat(plain: dict[str, Any]) -> _FlatPolicy:
    flat = _FlatPolicy({}, {}, set())
    pending: list[tuple[str, dict[str, Any]]] = [("", plain)]
    while pending:
        prefix, table = pending.pop()
        for name, value in table.items():
            key = f"{prefix}.{toml.key(name)}" if prefix else toml.key(name)
            if isinstance(value, dict):
                flat.tables.add(key)
                if value:
                    pending.append((key, value))
                else:
                    flat.values[key] = {}
            elif isinstance(value, list) and value and all(isinstance(entry, dict) for entry in value):
                flat.entries[key] = value
            else:
                flat.values[key] = value
    return flat
