"""Removes data sets of users, and keeps the data sets that requests use."""

from __future__ import annotations

from collections.abc import Set

from pilotage.core.errors import Conflict, InvalidInput
from pilotage.services.catalogue.registration import FILES_AT_ONCE, locked
from pilotage.store.tables import dataset_removal
from pilotage.store.tables.datasets import DataSetRow
from pilotage.store.tables.selections import Viewer
from pilotage.store.writer.transaction import Transaction


def remove(tx: Transaction, name: str, *, changer: Viewer, now: float) -> DataSetRow:
    """Hide a data set and free its name. `delete_removed` deletes its rows; the files themselves stay."""
    row = locked(tx, name, changer)
    users = dataset_removal.requests_using(tx.connection, row.id)
    if users:
        raise Conflict(
            f"the data set {name} is used by request {', '.join(map(str, users))}",
            hint="abort these requests, or wait for their end",
        )
    dataset_removal.mark_removed(tx.connection, row.id, now)
    return row


def delete_removed(tx: Transaction, dataset: int, limit: int = FILES_AT_ONCE) -> bool:
    """Delete some rows of a removed data set. False: nothing is left to delete."""
    return dataset_removal.delete_slice(tx.connection, dataset, limit)


def check_kept(tx: Transaction, used: Set[int]) -> None:
    """Raise `InvalidInput` if one of these data sets was removed. Nobody removes one until the transaction ends.

    A removal locks the data set before it looks for requests that use it. So one of the two sees the other.
    """
    gone = used - dataset_removal.share(tx.connection, used)
    if gone:
        names = ", ".join(dataset_removal.earlier_names(tx.connection, gone))
        raise InvalidInput(
            "a data set of the request was removed" + (f": {names}" if names else ""),
            hint="submit a new request with the data sets that there are",
            field="input",
        )
