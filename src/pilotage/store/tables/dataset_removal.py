"""The use of data sets by requests, and the removal of data sets that no request uses.

The row of the data set orders the two: a request shares its lock before it uses it, a removal locks it for itself.
"""

from __future__ import annotations

from collections.abc import Collection

from pilotage.store.engine.connection import Connection, in_list, json_numbers, lock_clause
from pilotage.store.engine.decisions import decision


def share(connection: Connection, ids: Collection[int]) -> set[int]:
    """The data sets among these that are not removed. Nobody removes them until the transaction ends."""
    condition, value = in_list(connection, "id", sorted(ids))
    sql = f"SELECT id FROM datasets WHERE {condition} AND removed IS NULL ORDER BY id"
    return {row[0] for row in connection.execute(sql + lock_clause(connection, "SHARE"), (value,))}


ENDED = (
    "'failed', 'rejected', 'completed', 'closed-out', 'announced', 'normal-archived', 'aborted-completed',"
    " 'aborted-archived', 'rejected-archived'"
)


def reads(connection: Connection, dataset: str) -> str:
    """The condition that a step `s` reads a data set. `dataset`: its id in SQL, which stands there three times."""
    lists = (
        f"s.{column} <> '[]' AND {dataset} IN ({json_numbers(connection, f's.{column}')})"
        for column in ("further_inputs", "pileup")
    )
    return f"(s.input_dataset = {dataset} OR {' OR '.join(lists)})"


@decision("requests share the lock of their data sets, which the removal holds")
def requests_using(connection: Connection, dataset: int) -> list[int]:
    """The requests that have not ended, and read or write a data set."""
    rows = connection.execute(
        "SELECT DISTINCT r.id FROM request_steps s JOIN requests r ON r.id = s.request_id"
        f" WHERE r.state NOT IN ({ENDED}) AND (s.output_dataset = ? OR s.log_dataset = ?"
        f" OR {reads(connection, '?')}) ORDER BY r.id",
        (dataset,) * 5,
    )
    return [row[0] for row in rows]


_MARK = " removed "
"""Comes after the name of a removed data set, and before its id. No other name has spaces."""


def mark_removed(connection: Connection, dataset: int, now: float) -> None:
    """Hide a data set and free its name. Its rows are deleted later, by `delete_slice`."""
    connection.execute(
        f"UPDATE datasets SET removed = ?, open = 0, name = name || '{_MARK}' || id WHERE id = ?",
        (now, dataset),
    )


def earlier_names(connection: Connection, ids: Collection[int]) -> list[str]:
    """The names that removed data sets had, if they have rows left."""
    condition, value = in_list(connection, "id", sorted(ids))
    rows = connection.execute(f"SELECT name FROM datasets WHERE {condition} ORDER BY name", (value,))
    return [row[0].partition(_MARK)[0] for row in rows]


def removed(connection: Connection) -> list[int]:
    """The data sets that are removed, and have rows left."""
    return [row[0] for row in connection.execute("SELECT id FROM datasets WHERE removed IS NOT NULL")]


def delete_slice(connection: Connection, dataset: int, limit: int) -> bool:
    """Delete at most `limit` files of a removed data set, then its blocks, then itself. False: nothing is left."""
    sql = (
        "DELETE FROM files WHERE id IN (SELECT f.id FROM files f JOIN blocks b ON b.id = f.block_id"
        " WHERE b.dataset_id = ? LIMIT ?)"
    )
    if connection.execute(sql, (dataset, limit)).rowcount:
        return True
    blocks = "SELECT id FROM blocks WHERE dataset_id = ? LIMIT ?"
    connection.execute(f"DELETE FROM replicas WHERE block_id IN ({blocks})", (dataset, limit))
    if connection.execute(f"DELETE FROM blocks WHERE id IN ({blocks})", (dataset, limit)).rowcount:
        return True
    for table in ("followed_datasets", "block_registrations", "closed_registrations"):
        connection.execute(f"DELETE FROM {table} WHERE dataset_id = ?", (dataset,))
    connection.execute("DELETE FROM datasets WHERE id = ? AND removed IS NOT NULL", (dataset,))
    return False
