"""The part of the waiting jobs that each of several servers offers first.

Servers with the same queues have the same first jobs in memory. Without parts they would offer the same jobs at the
same instant, and all servers but one would lose the draw.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice

from pilotage.core.queues.draws import FIRST
from pilotage.core.queues.indexed_queue import Head

WINDOW = 256
"""Heads in memory at most before a server draws jobs of other parts: no job waits behind more jobs than these."""

_MIXED = 0x9E3779B1
"""Spreads ids over the parts, also if all ids of a queue are multiples of one number."""


@dataclass(slots=True)
class OwnPart:
    """A hint. Rows decide who offers a job, so servers with different ideas of the parts only lose more draws."""

    share: tuple[int, int] = (0, 1)
    """The place of this server among the servers, and their number."""

    def place_of_draw(self, heads: Sequence[Head], chance: float) -> int:
        """The place of one of the first own heads; without own heads, of one of the first. `chance` is below 1."""
        own = self._first_own(heads)
        if own:
            return own[int(chance * len(own))]
        return int(chance * min(len(heads), FIRST))

    def is_short(self, heads: Sequence[Head]) -> bool:
        """Whether `heads` has too few own jobs, and not too many others."""
        return len(heads) < WINDOW and len(self._first_own(heads)) < FIRST

    def _first_own(self, heads: Sequence[Head]) -> Sequence[int]:
        place, servers = self.share
        if servers == 1:
            return range(min(len(heads), FIRST))
        own = (at for at, head in enumerate(heads) if (head[0] * _MIXED >> 16) % servers == place)
        return list(islice(own, FIRST))
