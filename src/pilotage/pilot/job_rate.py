"""Measures how fast payloads end, and from that how many jobs to hold ahead."""

from __future__ import annotations

import math
from collections import deque
from typing import Deque

SHORT_PAYLOAD = 1.0
"""Seconds: payloads are short if their median duration is below this. Only then are jobs held ahead."""

HORIZON = 0.25
"""Jobs are held ahead for this many seconds of work."""

COALESCE_SECONDS = 0.03
MAX_COALESCE_SECONDS = 0.1
"""Seconds between exchanges while payloads are short, at least and at most.

Each exchange costs both sides CPU time. The more work a pilot holds ahead, the longer it waits.
"""

EXCHANGES_AHEAD = 3
"""The jobs held ahead must last for this many exchanges: a job of a take starts two exchanges later."""

_WINDOW = 15
_MIN_DURATION = 0.002
"""Durations count as at least this many seconds, about the cost of starting a payload."""


class JobRate:
    """The durations of the most recent payloads."""

    def __init__(self) -> None:
        self._durations: Deque[float] = deque(maxlen=_WINDOW)
        self._median = math.inf

    def add(self, duration: float) -> None:
        self._durations.append(duration)
        if len(self._durations) > 1:
            self._median = sorted(self._durations)[len(self._durations) // 2]

    def clear(self) -> None:
        """Drop the measurements, because a payload turned out to be long."""
        self._durations.clear()
        self._median = math.inf

    def median(self) -> float:
        """The median duration of the recent payloads; infinite until two have ended."""
        return self._median

    def is_short(self) -> bool:
        return self.median() < SHORT_PAYLOAD

    def coalesce_seconds(self, held: int, slots: int) -> float:
        """Seconds between exchanges while payloads are short and this many jobs are held ahead."""
        if not self.is_short():
            return COALESCE_SECONDS
        work = held * self.median() / max(slots, 1)
        return min(max(work / EXCHANGES_AHEAD, COALESCE_SECONDS), MAX_COALESCE_SECONDS)

    def jobs_ahead(self, slots: int) -> int:
        """Jobs that finish within the horizon when `slots` payloads run at a time; 0 if payloads are not short."""
        median = self.median()
        if median >= SHORT_PAYLOAD:
            return 0
        return math.ceil(HORIZON * slots / max(median, _MIN_DURATION))
