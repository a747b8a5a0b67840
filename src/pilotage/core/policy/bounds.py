"""Ranges of the values of a policy: every accepted value can be stored, used in arithmetic and displayed.

Integers stay far below 64 bits, even after sums and products. Numbers are finite and far from overflow, and texts fit
into a database index.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any, Final

import msgspec

from pilotage.core.glue.schema import EXPRESSIONS
from pilotage.core.policy.model import Policy
from pilotage.core.setting import COUNT, keys_of

MAX_TEXT_CHARS: Final = 200
"""Characters of a text. Texts are stored in indexed columns and sent in tokens and headers."""
MAX_EXPRESSION_CHARS: Final = 10_000
"""Characters of a ClassAd expression, which is neither a column nor sent to pilots."""
MAX_LIST_ENTRIES: Final = 1000

_EXPRESSIONS: Final = frozenset({"director.pools.*.Rank", "director.pools.*.CPUNormalization"})
_CHECKS: Final = frozenset(name.lower() for name in EXPRESSIONS)
"""In lower case: attributes of a CE that are expressions."""

RANGES: Final[dict[str, tuple[float, float]]] = {
    key.name: key.setting.range for key in keys_of(Policy) if key.setting.range is not None
}
"""The smallest and the largest value of every number, by key; `*` stands for a name."""

ZERO_ALLOWED: Final = frozenset(key.name for key in keys_of(Policy) if key.setting.or_zero)
"""Numbers that may also be 0."""


def first_violation(policy: Policy) -> tuple[str, tuple[str, ...]] | None:
    """The first value outside of its range, as (message, keys); None if there is none."""
    return next(_violations(policy, (), ()), None)


def violation_in_options(kind: str, options: msgspec.Struct) -> str:
    """The first value out of its range in the table `[ces.NAME.KIND]`; empty: none is."""
    keys, pattern = ("ces", "NAME", kind), ("ces", "*", kind)
    return next((reason for reason, _ in _violations(options, keys, pattern)), "")


def _violations(
    value: Any, keys: tuple[str, ...], pattern: tuple[str, ...]
) -> Iterator[tuple[str, tuple[str, ...]]]:
    where = ".".join(keys)
    if isinstance(value, msgspec.Struct):
        for attribute, name in _keys(type(value)):
            yield from _violations(getattr(value, attribute), (*keys, name), (*pattern, name))
    elif isinstance(value, dict):
        for name, entry in value.items():
            reason = _text_violation(name)
            if reason:
                yield f"{where}: a name {reason}", (*keys, name)
            yield from _violations(entry, (*keys, name), (*pattern, "*"))
    elif isinstance(value, tuple):
        yield from _list_violations(value, keys, pattern)
    elif isinstance(value, str):
        reason = _text_violation(value, _longest(keys, pattern))
        if reason:
            yield f"{where} {reason}", keys
    elif isinstance(value, int | float) and not isinstance(value, bool):
        reason = _number_violation(value, ".".join(pattern))
        if reason:
            yield f"{where} {reason}", keys


@cache
def _keys(table: type[msgspec.Struct]) -> tuple[tuple[str, str], ...]:
    """The attributes of a table with their keys. msgspec takes a millisecond to list them."""
    return tuple((field.name, field.encode_name) for field in msgspec.structs.fields(table))


def _list_violations(
    values: tuple[Any, ...], keys: tuple[str, ...], pattern: tuple[str, ...]
) -> Iterator[tuple[str, tuple[str, ...]]]:
    if len(values) > MAX_LIST_ENTRIES:
        yield f"{'.'.join(keys)} has {len(values):,} entries; the limit is {MAX_LIST_ENTRIES:,}", keys
    for place, entry in enumerate(values):
        if isinstance(entry, msgspec.Struct):
            yield from _violations(entry, (*keys, str(place)), (*pattern, "*"))
        else:
            yield from _violations(entry, keys, pattern)


def _longest(keys: tuple[str, ...], pattern: tuple[str, ...]) -> int:
    """The characters that the text of a key may have."""
    is_check = pattern == ("ces", "*", "attributes", "*") and keys[-1].lower() in _CHECKS
    return MAX_EXPRESSION_CHARS if is_check or ".".join(pattern) in _EXPRESSIONS else MAX_TEXT_CHARS


def _text_violation(text: str, longest: int = MAX_TEXT_CHARS) -> str:
    if len(text) > longest:
        return f"has more than {longest:,} characters"
    if "\0" in text:
        # PostgreSQL cannot store it.
        return f"contains a NUL character: {text!r}"
    return ""


def _number_violation(value: float, pattern: str) -> str:
    low, high = RANGES.get(pattern, COUNT)
    if low <= value <= high or (value == 0 and pattern in ZERO_ALLOWED):
        return ""
    zero = "0, or " if pattern in ZERO_ALLOWED else ""
    return f"must be {zero}a number from {shown_bound(low)} to {shown_bound(high)}"


def shown_bound(number: float) -> str:
    """A bound of a range as text."""
    return f"{number:,.0f}" if number == 0 or number >= 1 else f"{number:g}"
