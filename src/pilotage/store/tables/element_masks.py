"""The masks of elements as agents post and read them: new rows of element jobs, and the input to be split."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from pilotage.core.splitting.mask import FileRecord, LumiRange
from pilotage.store.engine.bulk_statements import RowWriter, insert
from pilotage.store.engine.connection import Connection, in_list
from pilotage.store.engine.decisions import decision


class NewElementJob(NamedTuple):
    """A job of an element to be stored, in the order of the statement."""

    element_id: int
    element_epoch: int
    digest: str
    mask: str
    request_id: int
    step: int
    state: str
    location_set: int
    site: str
    agent_id: int
    events: int
    files: int
    size: int
    made: float
    ended: float | None = None
    failure: str = ""
    message: str = ""


insert_jobs = RowWriter[NewElementJob](insert("element_jobs", NewElementJob._fields))

_FILE = "id, name, size, events, lumis, block_id, element_job_id"


def known_digests(connection: Connection, element: int, digests: Sequence[str]) -> set[str]:
    """Which of these masks of an element have a job."""
    condition, value = in_list(connection, "digest", digests)
    sql = f"SELECT digest FROM element_jobs WHERE element_id = ? AND {condition}"
    return {row[0] for row in connection.execute(sql, (element, value))} if digests else set()


def digests_of(connection: Connection, element: int) -> list[str]:
    """The digests of all masks of an element, sorted."""
    sql = "SELECT digest FROM element_jobs WHERE element_id = ? ORDER BY digest"
    return [row[0] for row in connection.execute(sql, (element,))]


def count_of(connection: Connection, element: int) -> int:
    sql = "SELECT count(*) FROM element_jobs WHERE element_id = ?"
    return int(connection.execute(sql, (element,)).fetchone()[0])


def counts_of(connection: Connection, elements: Sequence[int]) -> dict[int, int]:
    """The number of masks of each of these elements that has any."""
    if not elements:
        return {}
    condition, value = in_list(connection, "element_id", elements)
    sql = f"SELECT element_id, count(*) FROM element_jobs WHERE {condition} GROUP BY element_id"
    return dict(connection.execute(sql, (value,)).fetchall())


@decision("the masks of an element that has ended never change")
def masks_of(connection: Connection, element: int) -> Iterator[str]:
    """All masks of an element, as JSON."""
    sql = "SELECT mask FROM element_jobs WHERE element_id = ?"
    for row in connection.execute(sql, (element,)):
        yield row[0]


def page(connection: Connection, element: int, after: int, limit: int) -> list[tuple[int, str]]:
    """(id, mask) of an element's masks in the order of their ids, after one of them."""
    sql = "SELECT id, mask FROM element_jobs WHERE element_id = ? AND id > ? ORDER BY id LIMIT ?"
    return [(row[0], row[1]) for row in connection.execute(sql, (element, after, limit))]


@decision("the files of a closed block never change")
def files_of_block(connection: Connection, block: int, after: int, limit: int) -> list[FileRecord]:
    """Files of a block in the order of their ids."""
    sql = f"SELECT {_FILE} FROM files WHERE block_id = ? AND id > ? ORDER BY id LIMIT ?"
    return [_file(row) for row in connection.execute(sql, (block, after, limit))]


@decision("the files of a closed block never change")
def files_of_blocks(connection: Connection, blocks: Sequence[int]) -> Iterator[FileRecord]:
    """All files of some blocks."""
    for block in blocks:
        sql = f"SELECT {_FILE} FROM files WHERE block_id = ? ORDER BY id"
        for row in connection.execute(sql, (block,)):
            yield _file(row)


@decision("files never change")
def files_by_ids(connection: Connection, ids: Sequence[int]) -> list[FileRecord]:
    """These files, as far as they exist, in the order of their ids."""
    if not ids:
        return []
    condition, value = in_list(connection, "id", ids)
    sql = f"SELECT {_FILE} FROM files WHERE {condition} ORDER BY id"
    return [_file(row) for row in connection.execute(sql, (value,))]


@decision("a file never changes its block")
def block_of_file(connection: Connection, file: int) -> int | None:
    row = connection.execute("SELECT block_id FROM files WHERE id = ?", (file,)).fetchone()
    return None if row is None else int(row[0])


def _file(row: Sequence[Any]) -> FileRecord:
    number, name, size, events, lumis, block, parent = row
    ranges = json.loads(lumis) if lumis else ()
    return FileRecord(
        number, name, size, events, tuple(LumiRange(*lumi) for lumi in ranges), block, parent or 0
    )


class UnsplitElement(NamedTuple):
    """An element that its agent could not split. It may have jobs for a part of it."""

    id: int
    blocks: str
    """JSON list of ids."""
    mask: str
    """JSON; empty: the whole of its blocks."""
    jobs: int
    """Estimated."""
    events: int
    files: int
    size: int
    location_set: int


@decision("an element that could not be split never changes; its request has ended")
def unsplit_elements(connection: Connection, request: int, step: int) -> list[UnsplitElement]:
    """The elements of a step that could not be split."""
    sql = (
        f"SELECT {', '.join(UnsplitElement._fields)} FROM elements"
        " WHERE request_id = ? AND step = ? AND state = 'Failed' AND unsplit = 1 ORDER BY id"
    )
    return [UnsplitElement(*row) for row in connection.execute(sql, (request, step))]


@decision("a job that failed for good never changes; its request has ended")
def failed_pieces(
    connection: Connection, request: int, step: int
) -> list[tuple[int, str, str, int, int, int]]:
    """(id, blocks of the element, mask, files, bytes, location set) of the jobs of a step that failed for good."""
    sql = (
        "SELECT j.id, e.blocks, j.mask, j.files, j.size, j.location_set FROM element_jobs j"
        " JOIN elements e ON e.id = j.element_id WHERE j.request_id = ? AND j.step = ? AND j.state = 'exhausted'"
        " ORDER BY j.id"
    )
    return [tuple(row) for row in connection.execute(sql, (request, step))]
