"""The largest values that a type of `wire` allows: lists and texts at their bound, numbers at their edge."""

from __future__ import annotations

import dataclasses
import enum
from dataclasses import dataclass
from itertools import count
from typing import Annotated, Any, ClassVar, Union, get_args, get_origin, get_type_hints

from pilotage.wire.limits import Bounds

NONE = type(None)


@dataclass
class Largest:
    """Makes one large value of a type. `room`: how many values it may have in all, texts and numbers alike."""

    long_texts: bool = False
    """Texts at their bound, and fewer of them; else short ones, all different."""
    low: bool = False
    """Numbers at their lower edge."""

    def __post_init__(self) -> None:
        self._next = count(1)

    def value(self, hint: Any, room: int, bounds: Bounds | None = None) -> Any:
        origin, arguments = get_origin(hint), get_args(hint)
        if origin is Annotated:
            own = next((extra for extra in arguments[1:] if isinstance(extra, Bounds)), bounds)
            return self.value(arguments[0], room, own)
        if dataclasses.is_dataclass(hint):
            return self.body(hint, room)
        if origin is list or origin is dict:
            return self._entries(origin, arguments, room, bounds)
        if origin is Union or NONE in arguments:
            *_, kind = (part for part in arguments if part is not NONE)
            return self.value(kind, room, bounds)
        if hint is bool:
            return False
        if hint is str:
            return self._text(bounds)
        if hint in (int, float):
            assert bounds is not None, hint
            return hint(bounds.low if self.low else bounds.high)
        if isinstance(hint, type) and issubclass(hint, enum.Enum):
            return next(iter(hint))
        return next(self._next)

    def body(self, kind: Any, room: int = 200_000) -> dict[str, Any]:
        """The fields of a message, as JSON has them."""
        hints = {
            name: hint
            for name, hint in get_type_hints(kind, include_extras=True).items()
            if get_origin(hint) is not ClassVar
        }
        return {name: self.value(hint, max(1, room // len(hints))) for name, hint in hints.items()}

    def _entries(self, origin: Any, arguments: Any, room: int, bounds: Bounds | None) -> Any:
        assert bounds is not None
        assert bounds.longest is not None
        most = min(bounds.longest, room, 300 if self.long_texts else room)
        first = self.value(arguments[-1], max(1, room // 4))
        number = max(bounds.shortest or 0, min(most, room // _size(first)))
        values = [
            first,
            *(self.value(arguments[-1], max(1, room // max(1, number))) for _ in range(1, number)),
        ]
        values = values[: bounds.longest]
        return values if origin is list else {f"k{n}": value for n, value in enumerate(values)}

    def _text(self, bounds: Bounds | None) -> str:
        assert bounds is not None
        assert bounds.longest is not None
        text = f"{next(self._next):x}"
        return text.ljust(min(bounds.longest, 1_000_000), "x") if self.long_texts else text[: bounds.longest]


def _size(value: Any) -> int:
    """How many values a value has."""
    if isinstance(value, dict):
        return 1 + sum(map(_size, value.values()))
    return 1 + sum(map(_size, value)) if isinstance(value, list) else 1
