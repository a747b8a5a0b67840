"""A cache of pilot rows."""

from __future__ import annotations

from collections.abc import Sequence

from pilotage.services.pool.lru_cache import LruCache
from pilotage.store.tables import pilots as pilot_rows
from pilotage.store.tables.pilots import PilotRow
from pilotage.store.writer.transaction import Transaction

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
