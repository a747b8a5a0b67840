"""What the values of a policy may be: whatever is accepted can be stored, reckoned with and shown by every statement.

Integers stay far within the 64 bits of a column even after they were added up or multiplied, numbers are finite and
far from overflow, and texts fit into an index.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import msgspec

from pilotage.core.policy.model import Policy
from pilotage.core.setting import COUNT, keys_of

LONGEST_NAME: Final = 200
"""Characters of a text: it may be a column of an index, and travels in tokens and headers."""
LONGEST_LIST: Final = 1000

RANGES: Final[dict[str, tuple[float, float]]] = {
    key.name: key.setting.range for key in keys_of(Policy) if key.setting.range is not None
}
"""The smallest and the largest value of every number, by key; `*` stands for a name."""

ZERO_TOO: Final = frozenset(key.name for key in keys_of(Policy) if key.setting.or_zero)
"""Numbers that may also be 0."""


def out_of_bounds(policy: Policy) -> tuple[str, tuple[str, ...]] | None:
    """The first value that no policy may have: why, and its keys. None if there is none."""
    return next(_faults(policy, (), ()), None)


def _faults(
    value: Any, keys: tuple[str, ...], pattern: tuple[str, ...]
) -> Iterator[tuple[str, tuple[str, ...]]]:
    where = ".".join(keys)
    if isinstance(value, msgspec.Struct):
        for field in msgspec.structs.fields(value):
            name = field.encode_name
            yield from _faults(getattr(value, field.name), (*keys, name), (*pattern, name))
    elif isinstance(value, dict):
        for name, entry in value.items():
            reason = _fault_of_text(name)
            if reason:
                yield f"{where}: the name {reason}", (*keys, name)
            yield from _faults(entry, (*keys, name), (*pattern, "*"))
    elif isinstance(value, tuple):
        yield from _faults_of_list(value, keys, pattern)
    elif isinstance(value, str):
        reason = _fault_of_text(value)
        if reason:
            yield f"{where} {reason}", keys
    elif isinstance(value, int | float) and not isinstance(value, bool):
        reason = _fault_of_number(value, ".".join(pattern))
        if reason:
            yield f"{where} {reason}", keys


def _faults_of_list(
    values: tuple[Any, ...], keys: tuple[str, ...], pattern: tuple[str, ...]
) -> Iterator[tuple[str, tuple[str, ...]]]:
    if len(values) > LONGEST_LIST:
        yield f"{'.'.join(keys)} has {len(values):,} entries: at most {LONGEST_LIST:,} can be", keys
    for place, entry in enumerate(values):
        if isinstance(entry, msgspec.Struct):
            yield from _faults(entry, (*keys, str(place)), (*pattern, "*"))
        else:
            yield from _faults(entry, keys, pattern)


def _fault_of_text(text: str) -> str:
    if len(text) > LONGEST_NAME:
        return f"is longer than {LONGEST_NAME} characters"
    if "\0" in text:
        # PostgreSQL has no place for it.
        return f"has a NUL character: {text!r}"
    return ""


def _fault_of_number(value: float, pattern: str) -> str:
    low, high = RANGES.get(pattern, COUNT)
    if low <= value <= high or (value == 0 and pattern in ZERO_TOO):
        return ""
    zero = "0, or " if pattern in ZERO_TOO else ""
    return f"must be {zero}a number from {_shown(low)} to {_shown(high)}"


def range_of(pattern: str) -> str:
    """The range of a number, for a table; empty for what is none."""
    if pattern not in RANGES:
        return ""
    low, high = RANGES[pattern]
    return f"{'0, ' if pattern in ZERO_TOO else ''}{_shown(low)} to {_shown(high)}"


def _shown(number: float) -> str:
    return f"{number:,.0f}" if number == 0 or number >= 1 else f"{number:g}"
