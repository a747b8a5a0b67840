"""Measures how fast payloads end, and from that how many jobs to hold ahead."""

from __future__ import annotations

import math
from collections import deque
from typing import Deque

SHORT_PAYLOAD = 1.0
"""Seconds: payloads are short if their median duration is below this. Only then are jobs held ahead."""

HORIZON = 0.25
"""Jobs are held ahead for this many seconds of work."""

_WINDOW = 15
_MIN_DURATION = 0.002
"""Durations count as at least this many seconds, about the cost of starting a payload."""


class JobRate:
    """The durations of the most recent payloads."""

    def __init__(self) -> None:
        self._durations: Deque[float] = deque(maxlen=_WINDOW)

    def add(self, duration: float) -> None:
        self._durations.append(duration)

    def clear(self) -> None:
        """Drop the measurements, because a payload turned out to be long."""
        self._durations.clear()

    def median(self) -> float:
        """The median duration of the recent payloads; infinite until two have ended."""
        if len(self._durations) < 2:
            return math.inf
        return sorted(self._durations)[len(self._durations) // 2]

    def is_short(self) -> bool:
        return self.median() < SHORT_PAYLOAD

    def jobs_ahead(self, slots: int) -> int:
        """Jobs that finish within the horizon when `slots` payloads run at a time; 0 if payloads are not short."""
        median = self.median()
        if median >= SHORT_PAYLOAD:
            return 0
        return math.ceil(HORIZON * slots / max(median, _MIN_DURATION))
