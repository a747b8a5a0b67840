"""When the processes of the payloads are looked at: a look reads all of /proc, which costs more than a short payload.

Pure: instants come in.
"""

from __future__ import annotations

import math

MIN_INTERVAL, MAX_INTERVAL = 0.1, 0.5
"""A payload is looked at for the first time when it is so old; later looks are at most so far apart."""
_COST_FACTOR = 50
"""Looking may take a fiftieth of a core."""


class Sampling:
    def __init__(self) -> None:
        self.next_at = math.inf

    def on_payload_started(self, now: float) -> None:
        """A payload was started."""
        self.next_at = min(self.next_at, now + MIN_INTERVAL)

    def is_due(self, now: float, oldest: float) -> bool:
        """Whether to look now, as the oldest payload that runs was started at `oldest`."""
        if now >= self.next_at and now < oldest + MIN_INTERVAL:
            # What this look was meant for has ended, and the others are too young for it.
            self.next_at = oldest + MIN_INTERVAL
        return now >= self.next_at

    def record_sample(self, started: float, ended: float, oldest: float) -> None:
        """A look was taken from `begun` to `over`."""
        pause = min(MAX_INTERVAL, 2 * (started - oldest))
        self.next_at = ended + max(pause, MIN_INTERVAL, _COST_FACTOR * (ended - started))
