"""Host classes from single hosts, and their common denominator for the ad of the CE."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from pilotage.core.glue.information import HostClass, Value, number_of

MOST_CLASSES: Final = 500
"""Host classes of one CE."""

MOST_NAMES: Final = 20_000
"""Names of hosts of one CE."""


class Host(NamedTuple):
    """One host of a batch system."""

    name: str
    attributes: Mapping[str, Value]


def group_hosts(hosts: Iterable[Host], details: Sequence[str] = ()) -> tuple[HostClass, ...]:
    """The hosts by equal attributes, the largest class first.

    With more than `MOST_CLASSES` classes the attribute with the most values is left out everywhere, until there are
    few enough classes. Attributes of `details` go first. An attribute that is left out is unknown on each host, so it
    excludes none.
    """
    kept = list(hosts)
    classes = _grouped(kept)
    while len(classes) > MOST_CLASSES:
        left_out = _most_varied([attributes for attributes, _ in classes], details)
        kept = [
            Host(name, known)
            for attributes, names in classes
            for known in [_without(attributes, left_out)]
            for name in names
        ]
        classes = _grouped(kept)
    if len(kept) > MOST_NAMES:
        return tuple(HostClass(len(names), attributes) for attributes, names in classes)
    return tuple(HostClass(len(names), attributes, tuple(names)) for attributes, names in classes)


def _most_varied(classes: Iterable[Mapping[str, Value]], details: Sequence[str]) -> str:
    """The attribute with the most different values, among `details` if any class has one of these."""
    values: dict[str, set[tuple[type, Value]]] = {}
    for attributes in classes:
        for attribute, value in attributes.items():
            values.setdefault(attribute, set()).add((type(value), value))
    return max(sorted(values), key=lambda name: (name in details, len(values[name])))


def _grouped(hosts: Iterable[Host]) -> list[tuple[Mapping[str, Value], list[str]]]:
    groups: dict[tuple[tuple[str, type, Value], ...], tuple[Mapping[str, Value], list[str]]] = {}
    by_object: dict[int, tuple[Mapping[str, Value], list[str]]] = {}
    for name, attributes in hosts:
        # Readers of many hosts give equal hosts one object. `groups` keeps each first one alive.
        group = by_object.get(id(attributes))
        if group is None:
            # 1, 1.0 and true are equal and have equal hashes.
            key = tuple(sorted((attribute, type(value), value) for attribute, value in attributes.items()))
            group = groups.setdefault(key, (attributes, []))
            if group[0] is attributes:
                by_object[id(attributes)] = group
        group[1].append(name)
    return sorted(groups.values(), key=lambda group: -len(group[1]))


def _without(attributes: Mapping[str, Value], left_out: str) -> dict[str, Value]:
    return {name: value for name, value in attributes.items() if name != left_out}


def flattened(classes: Sequence[HostClass]) -> dict[str, Value]:
    """The attributes that every host has, each with the least value.

    Numbers: the minimum. Booleans: true if true everywhere. Lists: the entries that all lists have. Texts: only if they
    are equal, since texts have no order.
    """
    if not classes:
        return {}
    first, *rest = classes
    least = {}
    for name, value in first.attributes.items():
        values = [value, *(other.attributes[name] for other in rest if name in other.attributes)]
        if len(values) == len(classes) and (denominator := _least(values)) is not None:
            least[name] = denominator
    return least


def _least(values: Sequence[Value]) -> Value | None:
    """The common denominator of these values; None if they have none."""
    if all(isinstance(value, bool) for value in values):
        return all(values)
    numbers = [number for value in values if (number := number_of(value)) is not None]
    if len(numbers) == len(values):
        return min(numbers)
    lists = [value for value in values if isinstance(value, tuple)]
    if len(lists) == len(values):
        common = set(lists[0]).intersection(*lists[1:])
        return tuple(entry for entry in lists[0] if entry in common)
    return values[0] if all(value == values[0] for value in values) and isinstance(values[0], str) else None
