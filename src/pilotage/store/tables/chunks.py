"""Chunks: accepted parameter rows of a submission, and how many of their jobs are created."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pilotage.core.ids import JobId, SubmissionId
from pilotage.store.engine import bulk_statements
from pilotage.store.engine.connection import Connection, in_list, lock_clause
from pilotage.store.engine.decisions import decision, hint, overwrites
from pilotage.store.engine.rows import columns, insertion, values


@dataclass(frozen=True, slots=True)
class ChunkRow:
    """The jobs of a chunk are first_job, first_job + 1 ...; the first `made` jobs are created."""

    submission: SubmissionId
    number: int
    digest: str
    first_job: JobId
    count: int
    made: int
    accepted: float


_COLUMNS = columns(ChunkRow, submission="submission_id")


def insert(connection: Connection, chunk: ChunkRow, rows: str) -> None:
    """Store an accepted chunk. `rows` is the JSON list of its parameter rows; "[]": its jobs have no parameters.

    The rows are stored only while jobs of the chunk remain to be created.
    """
    connection.execute_later(insertion("submission_chunks", _COLUMNS), values(chunk))
    if chunk.made == chunk.count:
        return
    sql = "INSERT INTO pending_rows (submission_id, number, rows) VALUES (?, ?, ?)"
    connection.execute_later(sql, (chunk.submission, chunk.number, rows))


def _to_chunk(row: Sequence[Any] | None) -> ChunkRow | None:
    return None if row is None else ChunkRow(*row)


@decision("an accepted chunk never changes, except for the number of created jobs")
def by_number(
    connection: Connection, submission: SubmissionId, number: int, *, lock: bool = False
) -> ChunkRow | None:
    """`lock`: no other server creates jobs of the chunk until the transaction ends."""
    sql = f"SELECT {_COLUMNS} FROM submission_chunks WHERE submission_id = ? AND number = ?"
    sql += lock_clause(connection, "UPDATE") if lock else ""
    return _to_chunk(connection.execute(sql, (submission, number)).fetchone())


def last(connection: Connection, submission: SubmissionId) -> ChunkRow | None:
    """The chunk with the highest number."""
    sql = f"SELECT {_COLUMNS} FROM submission_chunks WHERE submission_id = ? ORDER BY number DESC LIMIT 1"
    return _to_chunk(connection.execute(sql, (submission,)).fetchone())


@decision("accepted chunks never change")
def page(connection: Connection, submission: SubmissionId, begin: int, limit: int) -> list[ChunkRow]:
    """Chunks from number `begin` on, in ascending order."""
    sql = (
        f"SELECT {_COLUMNS} FROM submission_chunks WHERE submission_id = ? AND number >= ?"
        " ORDER BY number LIMIT ?"
    )
    return [ChunkRow(*row) for row in connection.execute(sql, (submission, begin, limit))]


@hint("the primary key of the jobs lets one creator store them; the other one looks again")
def first_incomplete(
    connection: Connection, submission: SubmissionId, *, lock: bool = False
) -> ChunkRow | None:
    """The first chunk with jobs that are not created yet; `lock` as in `by_number`."""
    sql = (
        f"SELECT {_COLUMNS} FROM submission_chunks WHERE submission_id = ? AND made < count"
        " ORDER BY number LIMIT 1"
    )
    sql += lock_clause(connection, "UPDATE") if lock else ""
    return _to_chunk(connection.execute(sql, (submission,)).fetchone())


@decision("accepted rows never change")
def pending_rows(connection: Connection, submission: SubmissionId, number: int) -> str:
    """The JSON list of the parameter rows of an incomplete chunk."""
    sql = "SELECT rows FROM pending_rows WHERE submission_id = ? AND number = ?"
    row = connection.execute(sql, (submission, number)).fetchone()
    return "[]" if row is None else str(row[0])


@overwrites("the primary key of the jobs lets one creator count them")
def save_made(connection: Connection, chunk: ChunkRow, made: int) -> None:
    """Store the number of created jobs. The parameter rows are deleted when the chunk is complete."""
    sql = "UPDATE submission_chunks SET made = ? WHERE submission_id = ? AND number = ?"
    connection.execute_later(sql, (made, chunk.submission, chunk.number))
    if made == chunk.count:
        sql = "DELETE FROM pending_rows WHERE submission_id = ? AND number = ?"
        connection.execute_later(sql, (chunk.submission, chunk.number))


@decision("chunks before an accepted one never change")
def count_before(connection: Connection, chunk: ChunkRow) -> int:
    """The number of rows in earlier chunks of the submission."""
    sql = "SELECT coalesce(sum(count), 0) FROM submission_chunks WHERE submission_id = ? AND number < ?"
    return int(connection.execute(sql, (chunk.submission, chunk.number)).fetchone()[0])


@decision("the number and ids of accepted jobs never change")
def jobs_at(connection: Connection, submission: SubmissionId, begin: int, most: int) -> list[int]:
    """The ids of the jobs of a submission from place `begin` on, at most `most`, in the order of their rows."""
    ids: list[int] = []
    before = 0
    sql = "SELECT first_job, count FROM submission_chunks WHERE submission_id = ? ORDER BY number"
    for first, count in connection.execute(sql, (submission,)):
        skipped = max(0, begin - before)
        ids += range(first + skipped, first + min(count, skipped + most - len(ids)))
        before += count
    return ids


def lock_unmade(connection: Connection, submission: SubmissionId, jobs: Sequence[int]) -> set[int]:
    """The jobs of a submission, among `jobs`, that are not created before the transaction ends."""
    sql = (
        "SELECT first_job + made, first_job + count FROM submission_chunks WHERE submission_id = ? AND made < count"
        " AND first_job + made <= ? AND first_job + count > ? ORDER BY number"
    )
    sql += lock_clause(connection, "SHARE")
    rows = connection.execute(sql, (submission, max(jobs), min(jobs))).fetchall()
    return {job for job in jobs for first, end in rows if first <= job < end}


_FILES = bulk_statements.insert("chunk_files", ("submission_id", "number", "digest"))


def insert_files(
    connection: Connection, submission: SubmissionId, number: int, digests: Sequence[str]
) -> None:
    """Record the uploads that the rows of a chunk name. `digests` has no duplicates."""
    connection.execute_bulk(_FILES, [(submission, number, digest) for digest in digests])


def delete_last(connection: Connection, submission: SubmissionId) -> ChunkRow | None:
    """Delete the last chunk of a submission that was never accepted, and return it; None: it has no chunk."""
    chunk = last(connection, submission)
    if chunk is None:
        return None
    for table in ("chunk_files", "pending_rows", "submission_chunks"):
        sql = f"DELETE FROM {table} WHERE submission_id = ? AND number = ?"
        connection.execute(sql, (submission, chunk.number))
    return chunk


def delete_of_submissions(connection: Connection, submissions: Sequence[int]) -> None:
    """Delete the chunks of deleted submissions. The ids of their jobs are never given again."""
    them, value = in_list(connection, "submission_id", submissions)
    sql = f"DELETE FROM submission_chunks WHERE {them} RETURNING first_job + count - 1"
    last = max((row[0] for row in connection.execute(sql, (value,))), default=0)
    connection.execute(f"DELETE FROM chunk_files WHERE {them}", (value,))
    # Usually later jobs exist, or later ids are reserved for the newest submission.
    sql = (
        "SELECT coalesce((SELECT max(id) FROM jobs), 0),"
        " coalesce((SELECT first_job + coalesce(expected, count) - 1 FROM submissions ORDER BY id DESC LIMIT 1), 0)"
    )
    if last > max(connection.execute(sql).fetchone()):
        connection.execute("UPDATE instance SET id_floor = ? WHERE id = 1 AND id_floor < ?", (last, last))
