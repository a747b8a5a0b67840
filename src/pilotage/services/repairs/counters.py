"""Repairs of counters, and of rows that gone servers have left."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from pilotage.services.pool.shared_limits import take_back_allocations
from pilotage.services.repairs.repair import Repair, RepairRun
from pilotage.store.integrity import mended_counters as rows
from pilotage.store.writer.transaction import Transaction


def take_places_back(run: RepairRun, tx: Transaction, servers: Sequence[str]) -> None:
    for server in servers:
        take_back_allocations(tx, server)


REPAIRS: Final[Mapping[str, Repair]] = {
    "duties-of-gone-servers": lambda run, tx, names: rows.release_duties(tx.connection, names),
    "places-of-gone-servers": take_places_back,
    "limit-places": lambda run, tx, keys: rows.count_again(tx.connection, keys),
    "submission-counters": lambda run, tx, ids: rows.count_submissions(tx.connection, ids),
    "owner-counters": lambda run, tx, owners: rows.count_owners(tx.connection, owners),
    "sequences": lambda run, tx, tables: rows.raise_sequences(tx.connection, tables),
}
