"""Tells an event loop that the store has changed, where one writer makes all changes."""

from __future__ import annotations

import asyncio


class ChangeWatch:
    """The changes that a writer has committed. Used in the thread of the writer."""

    def __init__(self, count: int | None) -> None:
        self.count = count
        """It grows with each COMMIT of changes; None: other servers may change rows too."""
        self._watchers: dict[asyncio.Future[None], None] = {}

    def note(self, count: int | None) -> None:
        """Called after each COMMIT."""
        if count != self.count:
            self.count = count
            watchers, self._watchers = self._watchers, {}
            for watcher in watchers:
                if not watcher.done():
                    watcher.set_result(None)

    def next(self) -> asyncio.Future[None]:
        """Done after the next COMMIT with changes. For a writer in the event loop of the caller."""
        watcher = asyncio.get_running_loop().create_future()
        self._watchers[watcher] = None
        watcher.add_done_callback(lambda done: self._watchers.pop(done, None))
        return watcher
