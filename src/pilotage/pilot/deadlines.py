"""The next instant of each of many keys. Finding the first costs no look at the others."""

from __future__ import annotations

import heapq
import math
from typing import Dict, Generic, List, Tuple, TypeVar

Key = TypeVar("Key")


class Deadlines(Generic[Key]):
    """One deadline per key. Pure: instants are arguments."""

    def __init__(self) -> None:
        self._instants: Dict[Key, float] = {}
        self._heap: List[Tuple[float, int, Key]] = []
        """With entries that no longer count: their instant is not that of their key."""
        self._count = 0

    def set(self, key: Key, instant: float) -> None:
        """Replace the deadline of a key; infinite: it has none."""
        if self._instants.get(key, math.inf) == instant:
            return
        if instant == math.inf:
            del self._instants[key]
            return
        self._instants[key] = instant
        self._count += 1  # keys are never compared
        heapq.heappush(self._heap, (instant, self._count, key))
        if len(self._heap) > 2 * len(self._instants) + 16:
            self._heap = [entry for entry in self._heap if self._counts(entry)]
            heapq.heapify(self._heap)

    def __contains__(self, key: Key) -> bool:
        return key in self._instants

    def next_at(self) -> float:
        """The first deadline; infinite: there is none."""
        while self._heap and not self._counts(self._heap[0]):
            heapq.heappop(self._heap)
        return self._heap[0][0] if self._heap else math.inf

    def pop_due(self, now: float) -> List[Key]:
        """The keys whose deadline has come, the first deadline first. They have none afterwards."""
        due: List[Key] = []
        while self.next_at() <= now:
            key = heapq.heappop(self._heap)[2]
            del self._instants[key]
            due.append(key)
        return due

    def _counts(self, entry: Tuple[float, int, Key]) -> bool:
        return self._instants.get(entry[2]) == entry[0]
