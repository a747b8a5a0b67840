"""Data sets, their blocks and their files."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from pilotage.core.datasets.facts import FileEntry
from pilotage.store.engine import bulk_statements
from pilotage.store.engine.connection import (
    Connection,
    bounded_addition,
    in_list,
    lock_clause,
)
from pilotage.store.engine.decisions import SHOWN, decision, hint
from pilotage.store.engine.rows import columns
from pilotage.store.tables import dataset_totals
from pilotage.store.tables.dataset_totals import Totals


class DataSetRow(NamedTuple):
    id: int
    name: str
    owner: str
    group: str
    created: float
    open: bool
    """More blocks may come."""
    request: int | None = None
    """The request that writes it; None: a user has registered it."""
    step: int | None = None
    catalogue: str = ""
    """The outside catalogue that it is copied from, or registered in if a request writes it; empty: none."""


class BlockRow(NamedTuple):
    id: int
    dataset: int
    name: str
    created: float
    open: bool
    closed_number: int | None
    """Steps take the closed blocks of a data set in this order. None: it is open."""
    files: int
    """The number of files; 0 for an open block that jobs write, see `contents_of`."""
    events: int
    size: int
    location_set: int
    """0: not known."""
    located: float | None
    """When the location was last known; None: never."""


class FileRow(NamedTuple):
    id: int
    block: int
    name: str
    size: int
    events: int
    checksum: str
    lumis: str
    """JSON, or empty."""
    element_job: int | None
    """The job that wrote it; None: a user has registered it."""


_DATA_SET = columns(DataSetRow, group="grp", request="request_id")
_BLOCK = columns(BlockRow, dataset="dataset_id")
_FILE = columns(FileRow, block="block_id", element_job="element_job_id")
_KEPT = "removed IS NULL"


def _data_set(row: Sequence[object]) -> DataSetRow:
    dataset = DataSetRow(*row)  # type: ignore[arg-type]
    return dataset._replace(open=bool(dataset.open))


def _block(row: Sequence[object]) -> BlockRow:
    block = BlockRow(*row)  # type: ignore[arg-type]
    return block._replace(open=bool(block.open))


# --- data sets


def insert(
    connection: Connection,
    *,
    name: str,
    owner: str,
    group: str,
    now: float,
    request: int | None = None,
    step: int | None = None,
    catalogue: str = "",
) -> DataSetRow | None:
    """Insert an open data set; None: the name is taken."""
    row = connection.execute(
        "INSERT INTO datasets (name, owner, grp, created, request_id, step, catalogue) VALUES (?, ?, ?, ?, ?, ?, ?)"
        f" ON CONFLICT (name) DO NOTHING RETURNING {_DATA_SET}",
        (name, owner, group, now, request, step, catalogue),
    ).fetchone()
    return None if row is None else _data_set(row)


@hint("the row is locked and looked at again before it is used")
def by_name(connection: Connection, name: str) -> DataSetRow | None:
    sql = f"SELECT {_DATA_SET} FROM datasets WHERE name = ? AND {_KEPT}"
    row = connection.execute(sql, (name,)).fetchone()
    return None if row is None else _data_set(row)


@hint(SHOWN)
def by_ids(connection: Connection, ids: Sequence[int]) -> dict[int, DataSetRow]:
    """Also removed data sets."""
    condition, value = in_list(connection, "id", ids)
    rows = connection.execute(f"SELECT {_DATA_SET} FROM datasets WHERE {condition}", (value,))
    return {row[0]: _data_set(row) for row in rows}


def lock(connection: Connection, dataset: int) -> DataSetRow | None:
    """The data set, locked until the transaction ends; None: it was removed."""
    sql = f"SELECT {_DATA_SET} FROM datasets WHERE id = ? AND {_KEPT}{lock_clause(connection, 'UPDATE')}"
    row = connection.execute(sql, (dataset,)).fetchone()
    return None if row is None else _data_set(row)


@hint(SHOWN)
def page(
    connection: Connection, after: int, limit: int, *, contains: str = "", owner: str = ""
) -> list[DataSetRow]:
    """Data sets with ids above `after`. `contains`: a part of their name."""
    sql = (
        f"SELECT {_DATA_SET} FROM datasets WHERE id > ? AND {_KEPT} AND (? = '' OR replace(name, ?, '') <> name)"
        " AND (? = '' OR owner = ?) ORDER BY id LIMIT ?"
    )
    values = (after, contains, contains, owner, owner, limit)
    return [_data_set(row) for row in connection.execute(sql, values)]


def close(connection: Connection, dataset: int) -> None:
    connection.execute("UPDATE datasets SET open = 0 WHERE id = ?", (dataset,))


def reopen_outputs(connection: Connection, request: int) -> None:
    """Open the data sets again that a request writes.

    They are locked whether they are open or not: the last writer before may be closing them at this instant.
    """
    connection.execute(
        "UPDATE datasets SET open = 1 WHERE id IN (SELECT id FROM datasets WHERE removed IS NULL AND id IN"
        " (SELECT output_dataset FROM request_steps WHERE request_id = ?"
        " UNION SELECT log_dataset FROM request_steps WHERE request_id = ?)"
        f" ORDER BY id{lock_clause(connection, 'UPDATE')})",
        (request, request),
    )


# --- blocks


def insert_block(
    connection: Connection, dataset: int, name: str, now: float, location_set: int, located: float | None
) -> int | None:
    """Insert an open block; returns its id. None: the name is taken."""
    row = connection.execute(
        "INSERT INTO blocks (dataset_id, name, created, location_set, located) VALUES (?, ?, ?, ?, ?)"
        " ON CONFLICT (dataset_id, name) DO NOTHING RETURNING id",
        (dataset, name, now, location_set, located),
    ).fetchone()
    return None if row is None else int(row[0])


def block_named(connection: Connection, dataset: int, name: str) -> BlockRow | None:
    sql = f"SELECT {_BLOCK} FROM blocks WHERE dataset_id = ? AND name = ?"
    row = connection.execute(sql, (dataset, name)).fetchone()
    return None if row is None else _block(row)


@decision("the data set of a block never changes")
def blocks_by_ids(connection: Connection, blocks: Sequence[int]) -> dict[int, BlockRow]:
    condition, value = in_list(connection, "id", blocks)
    rows = connection.execute(f"SELECT {_BLOCK} FROM blocks WHERE {condition}", (value,))
    return {row[0]: _block(row) for row in rows}


def open_blocks(connection: Connection, dataset: int) -> list[BlockRow]:
    """The open blocks of a data set, oldest first."""
    sql = f"SELECT {_BLOCK} FROM blocks WHERE dataset_id = ? AND open = 1 ORDER BY id"
    return [_block(row) for row in connection.execute(sql, (dataset,))]


def open_output_blocks(connection: Connection) -> list[tuple[BlockRow, bool]]:
    """All open blocks that jobs write, and whether their data set was closed."""
    columns = ", ".join(f"b.{name}" for name in _BLOCK.split(", "))
    rows = connection.execute(
        f"SELECT {columns}, d.open FROM blocks b JOIN datasets d ON d.id = b.dataset_id"
        " WHERE b.open = 1 AND d.request_id IS NOT NULL ORDER BY b.id"
    )
    return [(_block(row[:-1]), not row[-1]) for row in rows]


def lock_open_blocks(connection: Connection, blocks: Sequence[int]) -> list[BlockRow]:
    """The open blocks among these that no other transaction uses, locked until the end of the transaction."""
    condition, value = in_list(connection, "id", blocks)
    clause = lock_clause(connection, "UPDATE SKIP LOCKED")
    sql = f"SELECT {_BLOCK} FROM blocks WHERE {condition} AND open = 1 ORDER BY id{clause}"
    return [_block(row) for row in connection.execute(sql, (value,))]


@decision("closed blocks never change, and their numbers rise in the order of the commits")
def closed_blocks(connection: Connection, dataset: int, after: int, limit: int) -> list[BlockRow]:
    """The closed blocks with a `closed_number` above `after`, in its order: none is skipped by a later call."""
    sql = (
        f"SELECT {_BLOCK} FROM blocks WHERE dataset_id = ? AND closed_number > ?"
        " ORDER BY closed_number LIMIT ?"
    )
    return [_block(row) for row in connection.execute(sql, (dataset, after, limit))]


def block_page(connection: Connection, dataset: int, after: int, limit: int) -> list[BlockRow]:
    """Blocks with ids above `after`."""
    sql = f"SELECT {_BLOCK} FROM blocks WHERE dataset_id = ? AND id > ? ORDER BY id LIMIT ?"
    return [_block(row) for row in connection.execute(sql, (dataset, after, limit))]


def block_ids(connection: Connection, dataset: int) -> list[int]:
    """The ids of all blocks of a data set."""
    rows = connection.execute("SELECT id FROM blocks WHERE dataset_id = ? ORDER BY id", (dataset,))
    return [row[0] for row in rows]


def add_contents(connection: Connection, block: int, added: Totals) -> None:
    """Add to the counts of an open block."""
    connection.execute(
        f"UPDATE blocks SET files = files + ?, events = {bounded_addition('events')},"
        f" size = {bounded_addition('size')} WHERE id = ?",
        (added.files, added.events, added.events, added.size, added.size, block),
    )


def close_block(connection: Connection, dataset: int, block: int) -> None:
    """Close an open block. The data set is locked, so that the numbers of closed blocks rise as they are committed."""
    row = connection.execute(
        "UPDATE blocks SET open = 0, closed_number = 1 + (SELECT coalesce(max(b.closed_number), 0)"
        " FROM blocks b WHERE b.dataset_id = ? AND b.closed_number IS NOT NULL) WHERE id = ? AND open = 1"
        " RETURNING files, events, size",
        (dataset, block),
    ).fetchone()
    if row is not None:
        dataset_totals.add_closed(connection, dataset, row)


def count_contents(connection: Connection, block: int) -> int:
    """Store the counts of a block from its files; returns the number of files."""
    contents = contents_of(connection, [block]).get(block, Totals())
    connection.execute(
        "UPDATE blocks SET files = ?, events = ?, size = ? WHERE id = ?",
        (contents.files, contents.events, contents.size, block),
    )
    return contents.files


def contents_of(connection: Connection, blocks: Sequence[int]) -> dict[int, Totals]:
    """The contents of blocks, counted from their files."""
    condition, value = in_list(connection, "block_id", blocks)
    rows = connection.execute(
        f"SELECT block_id, count(*), {', '.join(dataset_totals.sums(connection, 'events', 'size'))}"
        f" FROM files WHERE {condition} GROUP BY block_id",
        (value,),
    )
    return {row[0]: Totals(1, 0, *map(int, row[1:])) for row in rows}


# --- files

_FILE_VALUES = (
    *("dataset_id", "block_id", "name", "size", "events", "checksum", "lumis", "created", "element_job_id"),
)
_INSERT_NEW_FILES = bulk_statements.insert("files", _FILE_VALUES)
_INSERT_FILES = bulk_statements.insert(
    "files", _FILE_VALUES, conflict=("dataset_id", "name"), otherwise="NOTHING", returning="name"
)


def insert_files(
    connection: Connection, dataset: int, files: Iterable[tuple[int, FileEntry, int | None]], now: float
) -> set[str]:
    """Insert (block, file, element job); returns the names of the inserted files. Names that exist are left alone."""
    rows = _file_rows(dataset, files, now)
    return {row[0] for row in connection.execute_bulk_returning(_INSERT_FILES, rows)}


def insert_new_files(
    connection: Connection, dataset: int, block: int, files: Iterable[FileEntry], now: float
) -> None:
    """Insert files of a user whose names are new, which the lock of the data set ensures. Twice as fast."""
    rows = _file_rows(dataset, ((block, file, None) for file in files), now)
    connection.execute_bulk(_INSERT_NEW_FILES, rows)


def _file_rows(
    dataset: int, files: Iterable[tuple[int, FileEntry, int | None]], now: float
) -> list[tuple[Any, ...]]:
    return [
        (
            dataset,
            block,
            file.name,
            file.size,
            file.events,
            file.checksum,
            json.dumps(file.lumis, separators=(",", ":")) if file.lumis else "",
            now,
            element_job,
        )
        for block, file, element_job in files
    ]


@hint("a name that is stored meanwhile fails the insertion")
def files_named(connection: Connection, dataset: int, names: Sequence[str]) -> dict[str, FileRow]:
    """The files of a data set with these names."""
    condition, value = in_list(connection, "name", names)
    sql = f"SELECT {_FILE} FROM files WHERE dataset_id = ? AND {condition}"
    return {row[2]: FileRow(*row) for row in connection.execute(sql, (dataset, value))}


def has_files(connection: Connection, block: int, count: int) -> bool:
    """Whether a block has at least `count` files."""
    sql = "SELECT 1 FROM files WHERE block_id = ? LIMIT 1 OFFSET ?"
    return connection.execute(sql, (block, count - 1)).fetchone() is not None


def file_page(connection: Connection, block: int, after: int, limit: int) -> list[FileRow]:
    """Files of a block with ids above `after`."""
    sql = f"SELECT {_FILE} FROM files WHERE block_id = ? AND id > ? ORDER BY id LIMIT ?"
    return [FileRow(*row) for row in connection.execute(sql, (block, after, limit))]


def lumis_of(file: FileRow) -> list[list[int]]:
    """The records [run, first, last] of a file."""
    return json.loads(file.lumis) if file.lumis else []
