"""How fast payloads end, and how many jobs are therefore worth holding ahead."""

from __future__ import annotations

import math
from collections import deque
from typing import Deque

SHORT_PAYLOAD = 1.0
"""Payloads whose median is below this are short: only then are jobs held ahead."""

HORIZON = 0.25
"""So many seconds' worth of jobs are held ahead."""

_WINDOW = 15
_MIN_DURATION = 0.002
"""No payload is taken to be faster: starting one costs about that."""


class JobRate:
    def __init__(self) -> None:
        self._durations: Deque[float] = deque(maxlen=_WINDOW)

    def add(self, duration: float) -> None:
        self._durations.append(duration)

    def clear(self) -> None:
        """A payload turned out long: what was learnt is worth nothing."""
        self._durations.clear()

    def median(self) -> float:
        """Of the recent payloads; infinite while too few have ended to tell."""
        if len(self._durations) < 2:
            return math.inf
        return sorted(self._durations)[len(self._durations) // 2]

    def is_short(self) -> bool:
        return self.median() < SHORT_PAYLOAD

    def jobs_ahead(self, slots: int) -> int:
        """How many jobs `slots` payloads at a time would finish within the horizon; 0 if they are not short."""
        median = self.median()
        if median >= SHORT_PAYLOAD:
            return 0
        return math.ceil(HORIZON * slots / max(median, _MIN_DURATION))
