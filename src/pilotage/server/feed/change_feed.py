"""The listeners of one server, and the recent changes that they share."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TypeAlias

from pilotage.server.feed.cursor import StreamPosition
from pilotage.server.feed.log_reader import LogReader, Read
from pilotage.server.feed.stream import RecentChanges
from pilotage.store.tables.feed import FeedRow

Awaited: TypeAlias = str | int
"""The changes that a listener waits for: of one owner by name, of one submission by id; "": of several owners."""


class ChangeFeed:
    """Reads the logs once for all listeners, and only while there are any. For the thread of the event loop."""

    def __init__(self) -> None:
        self.of_jobs = LogReader(False, {})
        self.of_requests = LogReader(True, {})
        self.closed = ""
        """Why this server tells no changes; empty: it does."""
        self.jobs: RecentChanges | None = None
        """None: nobody has listened for a while."""
        self.requests: RecentChanges | None = None
        self.wanted = asyncio.Event()
        """Set when the first listener has come."""
        self._listeners = 0
        self._waiting: dict[Awaited, set[asyncio.Future[None]]] = {}

    @property
    def has_listeners(self) -> bool:
        return self._listeners > 0

    @property
    def is_read(self) -> bool:
        """Whether recent changes are in memory."""
        return self.jobs is not None

    @contextmanager
    def listening(self) -> Iterator[None]:
        """Count a listener. The feed is read from the first one on."""
        self._listeners += 1
        if self._listeners == 1:
            self.wanted.set()
        try:
            yield
        finally:
            self._listeners -= 1

    async def advance(self, read: Read) -> None:
        """Read new changes, and wake the listeners that may see one. One task at a time calls it."""
        if self.jobs is None or self.requests is None:
            self.jobs = RecentChanges(await self.of_jobs.newest(read))
            self.requests = RecentChanges(await self.of_requests.newest(read))
            self.wake()  # their cursors may be older
            return
        for recent, reader in ((self.jobs, self.of_jobs), (self.requests, self.of_requests)):
            more = True
            while more:
                part = await reader.after(read, recent.end)
                more = part.more
                recent.extend(part.rows, part.end)
                if part.rows:
                    self.wake(_concerned(part.rows))

    def forget(self) -> None:
        """Drop the recent changes: nobody listens."""
        self.jobs = self.requests = None

    def wake(self, concerned: Iterable[Awaited] | None = None) -> None:
        """Wake the listeners that wait for one of these; None: all."""
        for key in list(self._waiting) if concerned is None else concerned:
            for future in self._waiting.get(key, ()):
                if not future.done():
                    future.set_result(None)

    @contextmanager
    def next_change(self, awaited: Awaited) -> Iterator[asyncio.Future[None]]:
        """A future that is done when there may be such a change, or the server stops."""
        future = asyncio.get_running_loop().create_future()
        waiting = self._waiting.setdefault(awaited, set())
        waiting.add(future)
        try:
            yield future
        finally:
            future.cancel()
            waiting.discard(future)
            if not waiting:
                del self._waiting[awaited]

    async def changes(
        self, read: Read, position: StreamPosition, *, of_requests: bool
    ) -> tuple[list[FeedRow], StreamPosition, bool]:
        """(changes after a position, where they end, whether more may follow), from memory if it has them."""
        recent, reader = (self.requests, self.of_requests) if of_requests else (self.jobs, self.of_jobs)
        if recent is not None and recent.covers(position):
            return recent.after(position), max(position, recent.end), False
        part = await reader.after(read, position)
        end = part.end
        if (
            recent is not None and not part.more
        ):  # all that was committed before the recent changes began is read
            end = max(end, recent.begin)
        return part.rows, end, part.more


def _concerned(rows: Iterable[FeedRow]) -> set[Awaited]:
    """Everything that listeners to these changes may wait for."""
    return {"", *(row.owner for row in rows), *(row.concerned_submission for row in rows)}
