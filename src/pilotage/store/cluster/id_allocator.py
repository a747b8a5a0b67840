"""Unique ids. The only server of a SQLite file counts up; servers that share a database allocate blocks.

A block is allocated in its own transaction, independent of the request that needs it. The rest of a block is unused
when its server ends; ids have 63 bits.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from pilotage.store.engine.connection import ConnectionLost, WriterConnection

BLOCK_SIZES = {"events": 100_000, "jobs": 10_000, "submissions": 100, "pilots": 100}
"""How many ids a server takes at once."""


class IdAllocator(Protocol):
    """The ids of one kind. Of one thread."""

    def next(self) -> int: ...

    def run(self, count: int) -> int:
        """The first of `count` ids that follow one another."""
        ...


class SequentialIds:
    """All ids above `last`."""

    def __init__(self, last: int) -> None:
        self.last = last

    def next(self) -> int:
        return self.run(1)

    def run(self, count: int) -> int:
        first = self.last + 1
        self.last += count
        return first

    def rewind(self, last: int) -> None:
        """Take back the ids above `last`."""
        self.last = last


class BlockIds:
    """Ids from blocks. `take(count)` allocates `count` consecutive ids and returns the first."""

    def __init__(self, take: Callable[[int], int], block: int) -> None:
        self._take = take
        self._block = block
        self._next = 1
        self._end = 1
        """Above the last of the block."""

    def next(self) -> int:
        if self._next == self._end:
            return self.run(1)
        self._next += 1
        return self._next - 1

    def run(self, count: int) -> int:
        missing = count - (self._end - self._next)
        if missing > 0:
            size = max(missing, self._block)
            first = self._take(size)
            if first != self._end:
                # The new block does not continue the old one, whose rest is too short and stays unused.
                self._next = first
                if size < count:
                    self._end = first + size
                    return self.run(count)
            self._end = first + size
        self._next += count
        return self._next - count


class Counters:
    """The counter rows, by a connection of their own that is in no transaction. Of one thread."""

    def __init__(self, connection: WriterConnection) -> None:
        self._connection = connection

    def raise_floor(self, name: str, floor: int) -> None:
        """Give no id up to `floor`."""
        sql = (
            "INSERT INTO counters (name, last) VALUES (?, ?)"
            " ON CONFLICT (name) DO UPDATE SET last = greatest(counters.last, excluded.last)"
        )
        self._connection.execute(sql, (name, floor))

    def take(self, name: str, count: int) -> int:
        """Allocate `count` ids; returns the first. Ids of a lost answer stay unused."""
        sql = "UPDATE counters SET last = last + ? WHERE name = ? RETURNING last"
        try:
            row = self._connection.execute(sql, (count, name)).fetchone()
        except ConnectionLost:
            self._connection.renew()
            row = self._connection.execute(sql, (count, name)).fetchone()
        return int(row[0]) - count + 1

    def numbers(self, name: str) -> BlockIds:
        return BlockIds(lambda count: self.take(name, count), BLOCK_SIZES[name])

    def close(self) -> None:
        self._connection.close()
