"""Finds silent pilots by deadline: a heap per CE, ordered by the last message that the entry knows of.

Messages do not touch the heaps, so a message costs nothing here. An entry that falls due is compared with the time of
its pilot's last message, and goes back if the pilot was heard meanwhile. So each pilot is looked at once per deadline.

An entry too many does no harm, since every entry is checked. So a rollback leaves the heaps as they are.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush, heapreplace

from pilotage.core.ids import PilotId

CHECKS = 2000
"""Entries checked in one call, so that it takes 2 ms at most. The rest is due in the next one."""

Patience = Callable[[str], float]
"""Seconds for which a pilot of a CE may be silent."""


@dataclass(slots=True)
class LoadProgress:
    """How far the running pilots of the store have been added, in the order of CE and id."""

    ce: str = ""
    pilot: int = 0


@dataclass(slots=True)
class PilotWatch:
    """The running pilots that speak to this server."""

    loading: LoadProgress | None = field(default_factory=LoadProgress)
    """None: all pilots of the store have been added."""
    orphans_of: frozenset[str] | None = None
    """The other servers at the last loading. Pilots of any further server have lost theirs. None: not loaded yet."""
    _heaps: dict[str, list[tuple[float, PilotId]]] = field(default_factory=dict)
    _silent: dict[PilotId, str] = field(default_factory=dict)
    """Pilots that were found silent and are not known as stalled yet, with their CEs."""
    _watched: set[PilotId] = field(default_factory=set)
    """The pilots of all heaps and of `_silent`."""

    def add(self, pilot: PilotId, ce: str, heard: float) -> None:
        """Watch a pilot; a pilot that is watched already keeps its entry."""
        if pilot not in self._watched:
            self._watched.add(pilot)
            heappush(self._heaps.setdefault(ce, []), (heard, pilot))

    def find_silent(
        self, last_seen: Mapping[PilotId, float], stalled: Collection[PilotId], patience: Patience, now: float
    ) -> list[PilotId]:
        """Pilots that are silent and not stalled. Each is found again until it is stalled, heard or forgotten."""
        self._check_due(last_seen, patience, now)
        quiet = []
        for pilot, ce in list(self._silent.items()):
            seen = last_seen.get(pilot)
            if seen is None or pilot in stalled:
                del self._silent[pilot]
                self._watched.discard(pilot)
            elif now - seen < patience(ce):
                del self._silent[pilot]
                heappush(self._heaps[ce], (seen, pilot))
            else:
                quiet.append(pilot)
        return quiet

    def _check_due(self, last_seen: Mapping[PilotId, float], patience: Patience, now: float) -> None:
        """Move silent pilots from the heaps to `_silent`."""
        checks = CHECKS
        for ce, heap in self._heaps.items():
            longest = patience(ce)
            while heap and checks and now - heap[0][0] >= longest:
                checks -= 1
                pilot = heap[0][1]
                seen = last_seen.get(pilot)
                if seen is not None and now - seen < longest:
                    heapreplace(heap, (seen, pilot))
                    continue
                heappop(heap)
                if seen is None:
                    self._watched.discard(pilot)
                else:
                    self._silent[pilot] = ce

    def is_silent(
        self, pilot: PilotId, last_seen: Mapping[PilotId, float], patience: Patience, now: float
    ) -> bool:
        """Whether a pilot of `find_silent` is silent still."""
        ce, seen = self._silent.get(pilot), last_seen.get(pilot)
        return ce is not None and seen is not None and now - seen >= patience(ce)

    def shift(self, seconds: float) -> None:
        """Move all times, as the leases move after an outage or a step of the clock."""
        for ce, heap in self._heaps.items():
            moved = [(heard + seconds, pilot) for heard, pilot in heap]
            heapify(moved)
            self._heaps[ce] = moved
