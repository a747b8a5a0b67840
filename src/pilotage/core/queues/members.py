"""A set from which any member is drawn in constant time."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from typing import Generic, TypeVar

Member = TypeVar("Member")


class Members(Generic[Member]):
    """Insertion, removal and a uniform draw, each in constant time."""

    __slots__ = ("_items", "_places")

    def __init__(self) -> None:
        self._items: list[Member] = []
        self._places: dict[Member, int] = {}

    def __len__(self) -> int:
        return len(self._items)

    def __iter__(self) -> Iterator[Member]:
        return iter(self._items)

    def add(self, member: Member) -> None:
        if member not in self._places:
            self._places[member] = len(self._items)
            self._items.append(member)

    def discard(self, member: Member) -> bool:
        """Whether it was there."""
        place = self._places.pop(member, None)
        if place is None:
            return False
        last = self._items.pop()
        if place < len(self._items):
            self._items[place] = last
            self._places[last] = place
        return True

    def any(self, rng: Random) -> Member:
        """Any one, each equally likely. There must be one."""
        return self._items[rng.randrange(len(self._items))] if len(self._items) > 1 else self._items[0]
