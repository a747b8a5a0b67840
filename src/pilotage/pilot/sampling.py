"""Decides when to sample the processes of payloads. A sample reads all of /proc and costs more than a short payload.

Pure: instants are arguments.
"""

from __future__ import annotations

import math

MIN_INTERVAL, MAX_INTERVAL = 0.1, 0.5
"""Seconds: the age of a payload at its first sample, and the maximum time between samples."""
_COST_FACTOR = 50
"""Sampling may use at most 1/50 of a core."""


class Sampling:
    """The schedule of samples."""

    def __init__(self) -> None:
        self.next_at = math.inf

    def on_payload_started(self, now: float) -> None:
        """Schedule the first sample of a new payload."""
        self.next_at = min(self.next_at, now + MIN_INTERVAL)

    def is_due(self, now: float, oldest: float) -> bool:
        """Whether to sample now. `oldest`: when the oldest running payload was started."""
        if now >= self.next_at and now < oldest + MIN_INTERVAL:
            # The payload that this sample was scheduled for has ended; the others are too young.
            self.next_at = oldest + MIN_INTERVAL
        return now >= self.next_at

    def record_sample(self, started: float, ended: float, oldest: float) -> None:
        """Schedule the next sample after one that took from `started` to `ended`."""
        pause = min(MAX_INTERVAL, 2 * (started - oldest))
        self.next_at = ended + max(pause, MIN_INTERVAL, _COST_FACTOR * (ended - started))
