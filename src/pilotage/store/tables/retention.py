"""Retention: deletes expired rows of each table in slices. `history` does the same for jobs.

The newest row of a table stays, because the next id is derived from it and no id is given twice.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from itertools import takewhile
from typing import Any, NamedTuple

from pilotage.core.requests.states import UNFINISHED
from pilotage.store.cluster.id_allocator import BLOCK_SIZES
from pilotage.store.engine.connection import Connection, in_list
from pilotage.store.engine.decisions import ONE_SERVER, decision, overwrites
from pilotage.store.engine.rows import columns
from pilotage.store.tables import partitions

PAGE_SIZE = 500
"""Submissions read per statement."""


class Progress(NamedTuple):
    """The progress of the retention of one table."""

    until: float | None
    ran: float
    total: int


def progress(connection: Connection) -> dict[str, Progress]:
    """The progress by name, as given to `add_progress`."""
    rows = connection.execute("SELECT name, until, ran, total FROM retention")
    return {row[0]: Progress(row[1], row[2], row[3]) for row in rows}


@decision(ONE_SERVER)
def until(connection: Connection, name: str) -> float:
    """The time stored by `save_until`; 0: none."""
    row = connection.execute("SELECT until FROM retention WHERE name = ?", (name,)).fetchone()
    return 0.0 if row is None or row[0] is None else float(row[0])


def save_until(connection: Connection, name: str, instant: float) -> None:
    """Store that all rows with an end before `instant` have been handled."""
    connection.execute(
        "INSERT INTO retention (name, until, ran, total) VALUES (?, ?, 0, 0)"
        " ON CONFLICT (name) DO UPDATE SET until = excluded.until",
        (name, instant),
    )


def add_progress(connection: Connection, name: str, now: float, rows: int) -> None:
    """Add the number of rows handled at `now`."""
    connection.execute(
        "INSERT INTO retention (name, ran, total) VALUES (?, ?, ?) ON CONFLICT (name) DO UPDATE SET"
        " ran = excluded.ran, total = retention.total + excluded.total",
        (name, now, rows),
    )


# --- rows


MAX_SKIPS = 32
"""Exceeds the number of servers that an instance has or recently had."""


def delete_events(connection: Connection, before: float, most: int) -> int:
    """Delete events before `before`, oldest first; returns their number.

    Ids rise with time only within a block of ids, which a server may use for long. So a younger event ends the search
    in its block, and the search continues with the next block. The rest of the block is deleted later.
    """
    deleted, after = 0, 0
    shared = connection.dialect != "sqlite"
    # Skip partitions of later months.
    in_months = f" AND at < '{partitions.month_end(before)!r}'::float8" if shared else ""
    for _ in range(MAX_SKIPS if shared else 1):
        sql = (
            f"SELECT id, at FROM events WHERE id > ? AND id < (SELECT max(id) FROM events){in_months}"
            " ORDER BY id LIMIT ?"
        )
        rows = connection.execute(sql, (after, most - deleted)).fetchall()
        gone = list(takewhile(lambda row: row[1] < before, rows))
        if gone:
            # Another server may be writing events with ids in this range.
            sql = "DELETE FROM events WHERE id >= ? AND id <= ? AND at < ?"
            deleted += connection.execute(sql, (gone[0][0], gone[-1][0], before)).rowcount
        if len(gone) == len(rows) or deleted >= most:
            break
        after = rows[len(gone)][0] + BLOCK_SIZES["events"]
    return deleted


def drop_month_of_events(connection: Connection, before: float) -> int | None:
    """Drop the first month that ended before `before`; returns its approximate number of rows.

    None: there is no such month, except the month of the newest event. Needs its own transaction.
    Raises as `partitions.detach`.
    """
    for month in partitions.expired_months(connection, "events", before):
        begin, end = partitions.month_start(month), partitions.month_start(partitions.next_month(month))
        newest = connection.execute("SELECT at FROM events ORDER BY id DESC LIMIT 1").fetchone()
        if newest is None or not begin <= newest[0] < end:
            rows = partitions.estimated_rows(connection, "events", month)
            partitions.detach(connection, "events", month)
            partitions.drop(connection, "events", month)
            return rows
    return None


@overwrites(ONE_SERVER)
def delete_attempts(connection: Connection, before: float, most: int) -> int:
    """Delete attempts that ended before `before`, at most `most`; returns their number."""
    sql = "SELECT job_id, epoch FROM attempts WHERE ended < ? ORDER BY ended LIMIT ?"
    gone = connection.execute(sql, (before, most)).fetchall()
    connection.executemany(
        "DELETE FROM attempts WHERE job_id = ? AND epoch = ?", [(row[0], row[1]) for row in gone]
    )
    return len(gone)


# --- rows without an index: searched on a reader's connection, deleted by id


def expired_reasons(connection: Connection, before: float) -> list[int]:
    """Ids of wait reasons before `before`, except for the last reason of each queue."""
    sql = (
        "SELECT id FROM queue_reasons r WHERE since < ? AND EXISTS"
        " (SELECT 1 FROM queue_reasons n WHERE n.queue_id = r.queue_id AND n.id > r.id) ORDER BY id"
    )
    return [row[0] for row in connection.execute(sql, (before,))]


@overwrites(ONE_SERVER)
def delete_reasons(connection: Connection, ids: Sequence[int]) -> int:
    connection.executemany("DELETE FROM queue_reasons WHERE id = ?", [(id_,) for id_ in ids])
    return len(ids)


def expired_pilots(connection: Connection, before: float) -> list[int]:
    """Ids of pilots that ended before `before`, except for the newest pilot."""
    sql = "SELECT id FROM pilots WHERE ended < ? AND id < (SELECT max(id) FROM pilots) ORDER BY id"
    return [row[0] for row in connection.execute(sql, (before,))]


def delete_pilots(connection: Connection, ids: Sequence[int], before: float) -> list[tuple[str, str]]:
    """Delete these pilots, except pilots that called again meanwhile; returns (stamp, CE) of deleted pilots."""
    gone: list[tuple[str, str]] = []
    for id_ in ids:
        sql = "DELETE FROM pilots WHERE id = ? AND ended < ? RETURNING stamp, ce"
        gone += [(row[0], row[1]) for row in connection.execute(sql, (id_, before)).fetchall()]
    return gone


# --- inputs


class ReferencedInputs(NamedTuple):
    """The digests that submissions with ids up to `last` name."""

    digests: frozenset[str]
    last: int


def expired_uploads(connection: Connection, before: float) -> set[str]:
    """Digests whose uploads are all older than `before`."""
    sql = "SELECT digest FROM uploads GROUP BY digest HAVING max(uploaded) < ?"
    return {row[0] for row in connection.execute(sql, (before,))}


def referenced_inputs(connection: Connection, old: Iterable[str]) -> ReferencedInputs:
    """The digests of `old` that a submission names. Reads all submissions, so use a reader's connection."""
    wanted, named, last = set(old), set[str](), 0
    while rows := connection.execute(
        "SELECT id, inputs FROM submissions WHERE id > ? ORDER BY id LIMIT ?", (last, PAGE_SIZE)
    ).fetchall():
        last = rows[-1][0]
        named |= wanted & _digests(row[1] for row in rows)
    named |= _referenced_by_chunks(connection, wanted - named)
    return ReferencedInputs(frozenset(named | _referenced_by_requests(connection, wanted - named)), last)


def _referenced_by_chunks(connection: Connection, digests: Iterable[str]) -> set[str]:
    """The digests that the rows of a chunk name."""
    them, value = in_list(connection, "digest", sorted(digests))
    sql = f"SELECT DISTINCT digest FROM chunk_files WHERE {them}"
    return {row[0] for row in connection.execute(sql, (value,))}


def _referenced_by_requests(connection: Connection, digests: Iterable[str]) -> set[str]:
    """The digests of programs of requests that have not ended. Their last step may submit its first job much later."""
    wanted = set(digests)
    if not wanted:
        return set()
    condition, value = in_list(connection, "state", sorted(UNFINISHED))
    named: set[str] = set()
    for (text,) in connection.execute(f"SELECT specification FROM requests WHERE {condition}", (value,)):
        named |= {digest for digest in wanted - named if digest in text}
    return named


def delete_uploads(connection: Connection, digests: Sequence[str], before: float, since: int) -> list[str]:
    """Delete unreferenced uploads; returns the deleted digests.

    The caller has checked submissions with ids up to `since`; this function checks later ones.
    """
    later = _digests(
        row[0] for row in connection.execute("SELECT inputs FROM submissions WHERE id > ?", (since,))
    )
    later |= _referenced_by_chunks(connection, digests)
    later |= _referenced_by_requests(connection, digests)
    gone = [
        digest
        for digest in digests
        if digest not in later
        and connection.execute(
            "SELECT 1 FROM uploads WHERE digest = ? AND uploaded >= ?", (digest, before)
        ).fetchone()
        is None
    ]
    # A submission of another server may have renewed an upload meanwhile: its row and file stay.
    sql = "DELETE FROM uploads WHERE digest = ? AND uploaded < ?"
    connection.executemany(sql, [(digest, before) for digest in gone])
    return gone


def file_of(digest: str) -> str:
    """The name to lock before the file of this digest is stored or deleted: it may have no row."""
    return f"input {digest}"


@decision("under the lock of the file's name")
def is_uploaded(connection: Connection, digest: str) -> bool:
    """Whether any owner has uploaded a file with this digest."""
    return connection.execute("SELECT 1 FROM uploads WHERE digest = ?", (digest,)).fetchone() is not None


def _digests(texts: Iterable[str]) -> set[str]:
    return {item["source"] for text in texts if text != "[]" for item in json.loads(text)}


# --- files whose rows are gone


class Removal(NamedTuple):
    id: int
    kind: str
    names: list[Any]


_REMOVAL = columns(Removal)


def schedule_removal(connection: Connection, kind: str, names: Sequence[Any]) -> None:
    """Schedule the removal of files after the commit, by this server or a later one."""
    if names:
        text = json.dumps(names, separators=(",", ":"))
        connection.execute("INSERT INTO removals (kind, names) VALUES (?, ?)", (kind, text))


def pending_removals(connection: Connection, after: int, most: int) -> list[Removal]:
    """Lists of files with ids above `after`, oldest first."""
    sql = f"SELECT {_REMOVAL} FROM removals WHERE id > ? ORDER BY id LIMIT ?"
    rows = connection.execute(sql, (after, most))
    return [Removal(row[0], row[1], json.loads(row[2])) for row in rows]


def delete_removals(connection: Connection, ids: Sequence[int]) -> None:
    """Delete removals whose files are gone."""
    connection.executemany("DELETE FROM removals WHERE id = ?", [(id_,) for id_ in ids])
