"""Submissions whose rows come in chunks: opened, filled, closed.

Jobs of an accepted chunk may run at once (docs/adr/0019). The store knows all: a client that died asks how far it
got, a chunk that comes again makes nothing twice.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from pilotage.core.errors import Conflict, InvalidInput, NotFound
from pilotage.core.ids import JobId, SubmissionId
from pilotage.core.jobs.description import JobDescription
from pilotage.core.jobs.parametric import inputs_with_placeholders, uses_job_number
from pilotage.core.jobs.per_job_inputs import per_job_columns
from pilotage.services.pool.state import Pool
from pilotage.services.submission.accept import (
    PreparedSubmission,
    begin,
    check_not_staged,
    check_room,
    check_same,
    use_files,
)
from pilotage.services.submission.job_creation import ChunkPace, ChunkRows, make_at_once
from pilotage.store.tables import chunks as chunk_rows
from pilotage.store.tables import submissions as rows
from pilotage.store.tables.chunks import ChunkRow
from pilotage.store.tables.events import record
from pilotage.store.writer.transaction import Transaction
from pilotage.wire.submissions import MAX_JOBS_IN_CHUNKS

KEPT_OPEN = 86400.0
"""A submission to which nothing has come for so many seconds is closed."""
CLOSED_AT_ONCE = 100


def check_description(description: JobDescription, names: Sequence[str], expected: int | None) -> None:
    """Refuse what cannot be meant before all rows are known."""
    if expected is None and uses_job_number(description):
        raise InvalidInput(
            "%n has the width of the last number, and how many rows will come was not said",
            hint="say how many (`expected`; a file tells it by itself), or number the rows in a column",
        )
    own = per_job_columns(description, names)
    for name in inputs_with_placeholders(description, own):
        raise InvalidInput(
            f"the input {name} differs from job to job: such files are not sent with rows in chunks",
            hint="use shared: or a URL, one folder for all jobs, or submissions of at most 5,000 jobs",
            field="input_sandbox",
        )


def open_submission(
    pool: Pool, tx: Transaction, prepared: PreparedSubmission, now: float
) -> rows.SubmissionRow:
    """Begin a submission, or find the one that this owner has begun with the same key."""
    known = rows.by_key(tx.connection, prepared.owner, prepared.key)
    if known is None:
        return begin(pool, tx, prepared, rows.OPEN, now)
    check_not_staged(known)
    check_same(known, prepared)
    return known


def of_owner(known: rows.SubmissionRow | None, id_: int, owner: str) -> rows.SubmissionRow:
    if known is None or known.owner != owner or known.state == rows.STAGED:
        raise NotFound(f"{owner} has no submission {id_}")
    return known


def accept_chunk(
    pool: Pool,
    tx: Transaction,
    owner: str,
    id_: int,
    number: int,
    given: ChunkRows,
    now: float,
    pace: ChunkPace,
) -> ChunkRow:
    """Store the rows of the next chunk, or find that they are stored.

    If `pace` allows that, their jobs are made here too: then the rows need not be kept until they are.
    """
    submission = of_owner(rows.by_id(tx.connection, SubmissionId(id_)), id_, owner)
    known = chunk_rows.by_number(tx.connection, submission.id, number)
    if known is not None:
        if known.digest != given.digest:
            raise Conflict(
                f"chunk {number} of submission {id_} was accepted before with other rows",
                hint="what was accepted stays as it is: send the rows after it, or submit with another key",
            )
        return known
    _check_next(tx, submission, number, given.count)
    check_room(pool, tx, owner, given.count)
    reserved = submission.expected is not None
    if reserved:
        first = JobId(submission.first_job + submission.count)
    else:
        pool.take_back_ids(tx)
        first = JobId(pool.job_ids.run(given.count))
    chunk = ChunkRow(submission.id, number, given.digest, first, given.count, 0, now)
    if pace.allows(given.count):
        make_at_once(pool, tx, chunk, given, pace)
        chunk = replace(chunk, made=chunk.count)
    chunk_rows.insert(tx.connection, chunk, given.text)
    use_files(tx, owner, chunk, given.files)
    first_of_all = submission.first_job if submission.count else first
    grown = replace(submission, first_job=first_of_all, count=submission.count + given.count, touched=now)
    rows.save_progress(tx.connection, grown)
    return chunk


def _check_next(tx: Transaction, submission: rows.SubmissionRow, number: int, count: int) -> None:
    if submission.state != rows.OPEN:
        raise Conflict(
            f"submission {submission.id} is closed with {submission.count:,} jobs",
            hint="send the other rows as a submission of its own, with another key",
        )
    last = chunk_rows.last(tx.connection, submission.id)
    following = 0 if last is None else last.number + 1
    if number != following:
        raise Conflict(
            f"chunk {number} of submission {submission.id} came, and {following} is the next one",
            hint="chunks come in the order of their numbers",
        )
    most = MAX_JOBS_IN_CHUNKS if submission.expected is None else submission.expected
    if submission.count + count > most:
        raise Conflict(
            f"submission {submission.id} was to have at most {most:,} jobs, and more rows come",
            hint="send the others as a submission of its own, with another key",
        )


def close(tx: Transaction, owner: str, id_: int, count: int, now: float) -> tuple[rows.SubmissionRow, int]:
    """No more rows come; (submission, its highest job id). `count` is how many the client has sent."""
    submission = of_owner(rows.by_id(tx.connection, SubmissionId(id_)), id_, owner)
    if count != submission.count:
        raise Conflict(
            f"submission {id_} has {submission.count:,} rows, and {count:,} were sent",
            hint="begin again with the same key: what is missing is sent, what is there is compared",
        )
    last = chunk_rows.last(tx.connection, submission.id)
    if submission.state == rows.OPEN:
        if last is None:
            raise Conflict(f"submission {id_} has no rows", hint="at least one job makes a submission")
        submission = replace(submission, state=rows.CLOSED, touched=now)
        rows.save_progress(tx.connection, submission)
    return submission, submission.first_job + count - 1 if last is None else last.first_job + last.count - 1


def close_left_open(pool: Pool, tx: Transaction, now: float) -> list[rows.SubmissionRow]:
    """Close some of the submissions that nobody goes on with. Their jobs stay as they are."""
    left = rows.idle_open(tx.connection, now - KEPT_OPEN, CLOSED_AT_ONCE)
    for submission in left:
        rows.save_progress(tx.connection, replace(submission, state=rows.CLOSED))
        record(
            tx.connection,
            pool.events,
            at=now,
            kind="left-open",
            actor="server",
            detail=f"submission {submission.id} is closed with {submission.count} jobs: no more rows came",
        )
    return left
