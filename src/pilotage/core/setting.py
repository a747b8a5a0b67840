"""Meaning and range of a key of the policy, written beside the field that holds it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Any, Final, get_args, get_origin, get_type_hints

import msgspec

YEAR: Final = 366 * 86400.0


@dataclass(frozen=True, slots=True)
class Setting:
    """Annotates a field: `half_life: Annotated[float, Setting("seconds ...", low=600, high=YEAR)]`.

    A number needs `low` and `high`, the smallest and the largest value. `or_zero` also allows 0.
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
    """`msgspec.NODEFAULT` if the key is required."""
    setting: Setting


def keys_of(table: type[msgspec.Struct], prefix: str) -> Iterator[Key]:
    """Every annotated key of `table` and of the tables below it."""
    hints = get_type_hints(table, include_extras=True)
    for field in msgspec.structs.fields(table):
        name = f"{prefix}.{field.encode_name}"
        kind, setting = _split(hints[field.name])
        below = _table_below(kind)
        if below is not None:
            yield from keys_of(below, f"{name}.*")
        elif setting is not None:
            default = field.default
            if default is msgspec.NODEFAULT and field.default_factory is not msgspec.NODEFAULT:
                default = field.default_factory()
            yield Key(name, kind, default, setting)


def _split(hint: Any) -> tuple[Any, Setting | None]:
    if get_origin(hint) is not Annotated:
        return hint, None
    kind, *extras = get_args(hint)
    return kind, next((extra for extra in extras if isinstance(extra, Setting)), None)


def _table_below(kind: Any) -> type[msgspec.Struct] | None:
    """The table type of a `dict[str, Table]`."""
    if get_origin(kind) is not dict:
        return None
    _, value = get_args(kind)
    return value if isinstance(value, type) and issubclass(value, msgspec.Struct) else None
