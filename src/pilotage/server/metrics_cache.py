"""The number of jobs in each state, for metrics. Counting is cached so that it takes little of the time."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping

from pilotage.store.engine.connection import Readers
from pilotage.store.tables import listing

QUICK = 0.02
"""Seconds. A count that takes at most this long is not cached."""

MAX_LOAD = 0.02
"""Maximum fraction of the time for counting."""


class CachedJobTotals:
    """The last count. Any thread may call it. Of several concurrent callers, one counts."""

    def __init__(self, readers: Readers, monotonic: Callable[[], float]) -> None:
        self._readers = readers
        self._monotonic = monotonic
        self._lock = threading.Lock()
        self._totals: Mapping[str, int] = {}
        self._good_until = 0.0

    def by_state(self) -> Mapping[str, int]:
        with self._lock:
            begun = self._monotonic()
            if begun >= self._good_until:
                self._totals = listing.state_totals(self._readers.connection())
                ended = self._monotonic()
                took = ended - begun
                self._good_until = 0.0 if took <= QUICK else ended + took / MAX_LOAD
            return self._totals
