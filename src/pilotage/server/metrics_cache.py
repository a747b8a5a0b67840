"""How many jobs are in each state, for metrics: counted anew only as often as that takes little of the time."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping

from pilotage.store.engine.connection import Readers
from pilotage.store.tables import listing

QUICK = 0.02
"""Seconds: what is counted within this is counted each time."""

PART = 0.02
"""Of the time, at most, that counting takes."""


class CachedJobTotals:
    """The last count. Safe to ask from any thread; of several who ask at once one counts."""

    def __init__(self, readers: Readers, monotonic: Callable[[], float]) -> None:
        self._readers = readers
        self._monotonic = monotonic
        self._lock = threading.Lock()
        self._found: Mapping[str, int] = {}
        self._good_until = 0.0

    def by_state(self) -> Mapping[str, int]:
        with self._lock:
            begun = self._monotonic()
            if begun >= self._good_until:
                self._found = listing.state_totals(self._readers.connection())
                ended = self._monotonic()
                took = ended - begun
                self._good_until = 0.0 if took <= QUICK else ended + took / PART
            return self._found
