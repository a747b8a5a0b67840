"""When the processes of the payloads are looked at: a look reads all of /proc, which costs more than a short payload.

Pure: instants come in.
"""

from __future__ import annotations

import math

FIRST, LONGEST = 0.1, 0.5
"""A payload is looked at for the first time when it is so old; later looks are at most so far apart."""
_PART = 50
"""Looking may take a fiftieth of a core."""


class Sampling:
    def __init__(self) -> None:
        self.next_at = math.inf

    def started(self, now: float) -> None:
        """A payload was started."""
        self.next_at = min(self.next_at, now + FIRST)

    def is_due(self, now: float, oldest: float) -> bool:
        """Whether to look now, as the oldest payload that runs was started at `oldest`."""
        if now >= self.next_at and now < oldest + FIRST:
            # What this look was meant for has ended, and the others are too young for it.
            self.next_at = oldest + FIRST
        return now >= self.next_at

    def looked(self, begun: float, over: float, oldest: float) -> None:
        """A look was taken from `begun` to `over`."""
        pause = min(LONGEST, 2 * (begun - oldest))
        self.next_at = over + max(pause, FIRST, _PART * (over - begun))
