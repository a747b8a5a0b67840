"""The order among the queues of one owner: a higher UserPriority goes first.

Shares are drawn between owners and groups. A draw names a queue. Then of the queues of its owner and group the one with
the highest UserPriority that fits gets the turn. The rule `dirac` has no such order, only odds.
"""

from __future__ import annotations

from collections.abc import Iterator

from pilotage.core.queues.indexed_queue import Entity, IndexedQueue


class OwnOrder:
    """The waiting queues of each owner and group, by the highest UserPriority that waits in them."""

    def __init__(self) -> None:
        self._levels: dict[Entity, dict[int, dict[IndexedQueue, None]]] = {}

    def update(self, entry: IndexedQueue) -> None:
        """Update the place of a queue in which the waiting jobs have changed."""
        highest = entry.highest_priority()
        before = entry.order_place
        if highest == before:
            return
        entry.order_place = highest
        of_owner = self._levels.setdefault((entry.identity.owner, entry.identity.group), {})
        if before is not None:
            del of_owner[before][entry]
            if not of_owner[before]:
                del of_owner[before]
        if highest is not None:
            of_owner.setdefault(highest, {})[entry] = None
        elif not of_owner:
            del self._levels[entry.identity.owner, entry.identity.group]

    def before(self, entry: IndexedQueue) -> Iterator[list[IndexedQueue]]:
        """The queues of its owner and group with a higher UserPriority, by UserPriority, the highest first."""
        of_owner = self._levels.get((entry.identity.owner, entry.identity.group), {})
        # Nearly always all wait with one UserPriority.
        if len(of_owner) > 1:
            for priority in sorted(of_owner, reverse=True):
                if priority == entry.order_place:
                    return
                yield list(of_owner[priority])
