"""The last changes of one log, in memory."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence

from pilotage.server.feed.cursor import StreamPosition
from pilotage.store.tables.feed import FeedRow

CAPACITY = 20_000
"""The least number of changes that are kept, once there were more. A listener further behind reads the store."""


class RecentChanges:
    """All changes between two positions of one log."""

    def __init__(self, begin: StreamPosition) -> None:
        self.begin = begin
        """Changes after it are here."""
        self.end = begin
        self._rows: list[FeedRow] = []
        self._positions: list[StreamPosition] = []

    def extend(self, rows: Sequence[FeedRow], end: StreamPosition) -> None:
        """Add the changes between the present end and `end`."""
        self._rows += rows
        self._positions += [StreamPosition(row.log, row.entry) for row in rows]
        self.end = end
        if len(self._rows) > 2 * CAPACITY:
            gone = len(self._rows) - CAPACITY
            self.begin = self._positions[gone - 1]
            del self._rows[:gone], self._positions[:gone]

    def covers(self, position: StreamPosition) -> bool:
        """Whether all changes after `position` are here, up to the end."""
        return self.begin <= position

    def after(self, position: StreamPosition) -> list[FeedRow]:
        """The changes after a position that is covered."""
        return self._rows[bisect_right(self._positions, position) :]
