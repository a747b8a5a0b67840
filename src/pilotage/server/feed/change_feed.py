"""The listeners of one server, and the recent changes that they share."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from pilotage.server.feed.cursor import StreamPosition
from pilotage.server.feed.log_reader import LogReader, Read
from pilotage.server.feed.stream import RecentChanges
from pilotage.store.tables.feed import FeedRow


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
        self._waiting: dict[str, set[asyncio.Future[None]]] = {}
        """The key is the owner of the jobs that a listener waits for; "": several owners."""

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
            self._wake(None)  # their cursors may be older
            return
        for recent, reader in ((self.jobs, self.of_jobs), (self.requests, self.of_requests)):
            more = True
            while more:
                part = await reader.after(read, recent.end)
                more = part.more
                recent.extend(part.rows, part.end)
                if part.rows:
                    self._wake({row.owner for row in part.rows})

    def forget(self) -> None:
        """Drop the recent changes: nobody listens."""
        self.jobs = self.requests = None

    def _wake(self, owners: Iterable[str] | None) -> None:
        """Wake the listeners of these owners; None: all."""
        for name in list(self._waiting) if owners is None else ("", *owners):
            for future in self._waiting.pop(name, ()):
                if not future.done():
                    future.set_result(None)

    def next_change(self, owner: str) -> asyncio.Future[None]:
        """Done when there may be a change of this owner's jobs; "": of anybody's."""
        future = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(owner, set()).add(future)
        future.add_done_callback(lambda done: self._leave(owner, done))
        return future

    def _leave(self, owner: str, future: asyncio.Future[None]) -> None:
        waiting = self._waiting.get(owner)
        if waiting is not None:
            waiting.discard(future)
            if not waiting:
                del self._waiting[owner]

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
