"""Meaning and range of a key of the policy, written beside the field that holds it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Annotated, Any, Final, get_args, get_origin, get_type_hints

import msgspec

YEAR: Final = 366 * 86400.0

SECONDS: Final = (0.0, 100 * YEAR)
COUNT: Final = (0, 10**12)
BYTES: Final = (0, 2**60)
"""Ranges that several keys share. Sums and products of integers stay far within 64 bits, numbers far from overflow."""


@dataclass(frozen=True, slots=True)
class Setting:
    """Annotates a field: `half_life: Annotated[float, Setting("seconds ...", low=600, high=YEAR)]`.

    A number needs `low` and `high`, the smallest and the largest value. `or_zero` also allows 0, where a smaller number
    than `low` would overflow a division.
    """

    meaning: str
    low: float | None = None
    high: float | None = None
    or_zero: bool = False

    @property
    def range(self) -> tuple[float, float] | None:
        return None if self.low is None or self.high is None else (self.low, self.high)


@dataclass(frozen=True, slots=True)
class Key:
    """One key of a table: its dotted name (`*` for a name that the user chooses), type, default and setting."""

    name: str
    type: Any
    default: Any
    """`msgspec.NODEFAULT` if the key is required, or if it is a table or list of names that is empty by default."""
    setting: Setting


@cache
def keys_of(table: type[msgspec.Struct]) -> tuple[Key, ...]:
    """Every annotated key of `table` and of the tables below it, fields of base classes first."""
    return tuple(_keys(table, ""))


def _keys(table: type[msgspec.Struct], prefix: str) -> Iterator[Key]:
    fields = {field.name: field for field in msgspec.structs.fields(table)}
    for attribute, hint in get_type_hints(table, include_extras=True).items():
        if attribute not in fields:
            continue
        field = fields[attribute]
        name = f"{prefix}{field.encode_name}"
        kind, setting = _split(hint)
        below, star = _table_below(kind)
        if below is not None:
            yield from _keys(below, f"{name}.{star}")
        elif setting is not None:
            if get_origin(kind) is dict:
                name, kind = f"{name}.*", get_args(kind)[1]
            yield Key(name, kind, field.default, setting)


def _split(hint: Any) -> tuple[Any, Setting | None]:
    if get_origin(hint) is not Annotated:
        return hint, None
    kind, *extras = get_args(hint)
    return kind, next((extra for extra in extras if isinstance(extra, Setting)), None)


def _table_below(kind: Any) -> tuple[type[msgspec.Struct] | None, str]:
    """The table type of a table, or of a dictionary or list of tables; and `*.` where an entry has a name or place."""
    if _is_table(kind):
        return kind, ""
    arguments = get_args(kind)
    if get_origin(kind) is dict and _is_table(arguments[1]):
        return arguments[1], "*."
    if get_origin(kind) is tuple and _is_table(arguments[0]):
        return arguments[0], "*."
    return None, ""


def _is_table(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, msgspec.Struct)
