"""Reads the change feed while clients listen."""

from __future__ import annotations

from math import inf

from pilotage.server.context import Context
from pilotage.server.duties.duty import Duty

PERIOD = 0.05
"""Seconds between two reads: many commits of a busy server are told at once."""
REST = 60.0
"""Seconds without a listener after which nothing is read any more."""


class FeedDuty(Duty):
    """Reads new changes for all listeners. Each server has its own."""

    name = "feed"

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self._listened = -inf
        """The last time with a listener, by `context.monotonic`."""

    def period(self) -> float:
        """Seconds until the next read. Without a listener for a while: until one comes."""
        if self._context.duties.feed.has_listeners:
            return PERIOD
        return REST if self._context.duties.feed.is_read else inf

    async def work(self) -> None:
        """Read the changes since the last cycle. On SQLite the next cycle waits for a commit."""
        context, now = self._context, self._context.monotonic()
        if context.duties.feed.has_listeners:
            self._listened = now
            self.idle_until = inf
            await context.duties.feed.advance(context.quick_read)
        elif now - self._listened >= REST:
            context.duties.feed.forget()
