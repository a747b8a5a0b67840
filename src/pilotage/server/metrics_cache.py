"""Counts for metrics. They are cached, so that counting takes little of the time."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Generic, TypeVar

from pilotage.store.engine.connection import Connection, Readers

QUICK = 0.02
"""Seconds. A count that takes at most this long is not cached."""

MAX_LOAD = 0.02
"""Maximum fraction of the time for counting."""


Counts = TypeVar("Counts")


class CachedCounts(Generic[Counts]):
    """The last count. Any thread may call it. Of several concurrent callers, one counts."""

    def __init__(
        self, readers: Readers, monotonic: Callable[[], float], count: Callable[[Connection], Counts]
    ) -> None:
        self._readers = readers
        self._monotonic = monotonic
        self._count = count
        self._lock = threading.Lock()
        self._last: Counts | None = None
        self._good_until = 0.0

    def read(self) -> Counts:
        with self._lock:
            begun = self._monotonic()
            if self._last is None or begun >= self._good_until:
                self._last = self._count(self._readers.connection())
                ended = self._monotonic()
                took = ended - begun
                self._good_until = 0.0 if took <= QUICK else ended + took / MAX_LOAD
            return self._last
