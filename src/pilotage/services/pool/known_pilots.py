"""The pilots in memory: their rows, and their signs of life."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import islice

from pilotage.core.ids import PilotId
from pilotage.services.pool.pilot_cache import PilotCache
from pilotage.services.pool.pilot_watch import PilotWatch
from pilotage.store.writer.transaction import Transaction


@dataclass(slots=True)
class KnownPilots:
    """The state of pilots that the store has only in part."""

    rows: PilotCache = field(default_factory=PilotCache)
    last_seen: dict[PilotId, float] = field(default_factory=dict)
    """When each pilot sent its last message. The store has only its lease."""
    heard: dict[PilotId, float] = field(default_factory=dict)
    """The last sign of life of each pilot that this server has heard. Costs are booked up to it."""
    watch: PilotWatch = field(default_factory=PilotWatch)
    """Finds pilots that have been silent for too long."""
    unconfirmed: dict[PilotId, float] = field(default_factory=dict)
    """Pilots with offered jobs that they may not have confirmed, and the time of the first such offer."""
    stalled: set[PilotId] = field(default_factory=set)
    finished: dict[PilotId, int] = field(default_factory=dict)
    """Jobs finished since the count was last written to the pilot's row."""

    def unconfirmed_before(self, before: float, limit: int) -> list[PilotId]:
        """At most `limit` pilots with unconfirmed offers made before an instant."""
        earlier = (pilot for pilot, at in self.unconfirmed.items() if at < before)
        return list(islice(earlier, limit))

    def set_unconfirmed(self, tx: Transaction, pilot: PilotId, since: float | None) -> None:
        """Record when the first unconfirmed offer to a pilot was made; None: all are confirmed or taken back."""
        if since is None:
            tx.delete(self.unconfirmed, pilot)
        else:
            tx.put(self.unconfirmed, pilot, since)
