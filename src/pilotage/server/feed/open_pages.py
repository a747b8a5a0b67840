"""Tells open pages of changes: one reader of the change feed for all of them.

A page names its jobs, such as job:12. The reader looks at each change once and finds the pages that show it, so
that open pages cost nothing while nothing of theirs changes. The pace falls with their number: together they are
told to load again about five times a second, however many there are.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from contextlib import contextmanager

from pilotage.server.feed.change_feed import ChangeFeed
from pilotage.server.feed.log_reader import Read
from pilotage.store.tables.feed import FeedRow

LEAST_PAUSE = 2.0
"""Seconds between two updates of a page."""
PAUSE_FOR_EACH = 0.2
"""Seconds by which each open page lengthens the pauses of all."""
GATHERING = 1.0
"""Seconds between two looks at the feed."""
SLOW_TICK = 15.0
"""Seconds after which parts that no change of a job tells of are shown again."""


class Watcher:
    """One open page."""

    def __init__(self, names: Iterable[str]) -> None:
        self.names = frozenset(names)
        self.changed = set(self.names)
        """Its parts to show again; at first all, as something may have changed since the page was made."""
        self.woken = asyncio.Event()

    def tell(self, name: str) -> None:
        self.changed.add(name)
        self.woken.set()


class OpenPages:
    """The open pages of one server. For the thread of the event loop."""

    def __init__(
        self, feed: ChangeFeed, read: Read, monotonic: Callable[[], float], stop: asyncio.Event
    ) -> None:
        """`stop`: set when the server stops."""
        self._feed = feed
        self._read_store = read
        self._monotonic = monotonic
        self._stop = stop
        self._watchers: dict[str, set[Watcher]] = {}
        self._open = 0
        self._reader: asyncio.Task[None] | None = None

    @property
    def pause(self) -> float:
        """Seconds between two updates of one page."""
        return max(LEAST_PAUSE, self._open * PAUSE_FOR_EACH)

    @contextmanager
    def watching(self, names: Iterable[str]) -> Iterator[Watcher]:
        """A page is open that shows these."""
        watcher = Watcher(names)
        for name in watcher.names:
            self._watchers.setdefault(name, set()).add(watcher)
        self._open += 1
        if self._reader is None and not self._feed.closed:
            self._reader = asyncio.create_task(self._read())
        try:
            yield watcher
        finally:
            self._open -= 1
            for name in watcher.names:
                self._watchers[name].discard(watcher)
                if not self._watchers[name]:
                    del self._watchers[name]
            if not self._open and self._reader is not None:
                self._reader.cancel()
                self._reader = None

    async def changes(self, watcher: Watcher) -> AsyncIterator[set[str]]:
        """The parts of a page to show again, not faster than the pace; an empty set is a sign of life."""
        stop = asyncio.ensure_future(self._stop.wait())
        followed = {name for name in watcher.names if name.startswith("log:")}
        slow = {name for name in watcher.names if name.startswith("why:")}
        slow_at = self._monotonic() + SLOW_TICK
        try:
            while True:
                await asyncio.wait((stop,), timeout=self.pause)
                if not followed and not watcher.changed:
                    woken = asyncio.ensure_future(watcher.woken.wait())
                    await asyncio.wait((stop, woken), timeout=SLOW_TICK, return_when=asyncio.FIRST_COMPLETED)
                    woken.cancel()
                if stop.done():
                    return
                watcher.woken.clear()
                names, watcher.changed = watcher.changed | followed, set()
                if self._monotonic() >= slow_at:
                    names |= slow
                    slow_at = self._monotonic() + max(SLOW_TICK, self.pause)
                yield names
        finally:
            stop.cancel()

    async def _read(self) -> None:
        """Read the feed for all open pages."""
        feed, read = self._feed, self._read_store
        with feed.listening():
            position = await feed.of_jobs.newest(read)
            while True:
                with feed.next_change("") as change:
                    rows, position, more = await feed.changes(read, position, of_requests=False)
                    self._tell(rows)
                    if not more:
                        await change
                        await asyncio.sleep(GATHERING)

    def _tell(self, rows: Iterable[FeedRow]) -> None:
        names = set[str]()
        for row in rows:
            submission = f"submission:{row.concerned_submission}"
            names |= {f"{row.kind}:{row.id}", submission, f"owner:{row.owner}"}
        for name in names & self._watchers.keys():
            for watcher in self._watchers[name]:
                watcher.tell(name)
