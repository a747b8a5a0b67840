"""The pilots in memory: their rows, and their signs of life."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import islice

from pilotage.core.ids import JobId, PilotId
from pilotage.services.pool.lru_cache import LruCache
from pilotage.services.pool.pilot_watch import PilotWatch
from pilotage.store.tables import pilots as pilot_rows
from pilotage.store.tables.pilots import PilotRow
from pilotage.store.writer.transaction import Transaction
from pilotage.wire.payload_use import JobUse

MAX_PILOTS = 16384
"""Rows in the cache. The least recently used row is evicted first, and read again at its pilot's next message."""


class PilotCache(LruCache[str, PilotRow]):
    """Rows of pilots by the hash of their token."""

    def __init__(self) -> None:
        super().__init__(MAX_PILOTS)

    def remember(self, pilot: PilotRow) -> None:
        if pilot.token_hash is not None:
            self[pilot.token_hash] = pilot

    def forget(self, pilot: PilotRow) -> None:
        """Drop a row. It is read again at the pilot's next message."""
        if pilot.token_hash is not None:
            self.pop(pilot.token_hash, None)

    def reload(self, tx: Transaction, token_hashes: Sequence[str]) -> None:
        """Drop all rows, and read these from the store: another server may have changed them."""
        self.clear()
        for pilot in pilot_rows.by_tokens(tx.connection, token_hashes):
            self.remember(pilot)

    def touch(self, tx: Transaction, pilot: PilotRow) -> None:
        """Drop the row of a pilot if `tx` fails. Call it when the row changes in memory."""
        tx.touch("pilots", pilot.token_hash, pilot, self._forget_touched)

    def touched(self, tx: Transaction) -> dict[str | None, PilotRow]:
        """The mutable mapping of touched rows by token hash, for a caller that touches many."""
        return tx.touched("pilots", self._forget_touched)

    def _forget_touched(self, touched: dict[str | None, PilotRow]) -> None:
        for pilot in touched.values():
            self.forget(pilot)


Uses = dict[JobId, tuple[int, JobUse]]
"""Running job → the epoch of its attempt, and its use."""


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
    uses: dict[PilotId, Uses] = field(default_factory=dict)
    """The use of the running payloads of each pilot, as it told last (services/pilots/payload_uses.py)."""
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
