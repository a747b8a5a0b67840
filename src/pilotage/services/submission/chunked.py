"""Submissions with rows in several requests: open, accept chunks, close.

Jobs of an accepted chunk may run at once (docs/adr/0019). All state is in the store: a restarted client asks for its
progress, and a repeated chunk creates no job twice.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace

from pilotage.core.errors import Conflict, InvalidInput, NotFound
from pilotage.core.ids import JobId, SubmissionId
from pilotage.core.jobs.description import JobDescription
from pilotage.core.jobs.parametric import inputs_with_placeholders, uses_job_number
from pilotage.core.jobs.per_job_inputs import per_job_columns
from pilotage.core.plurals import plural
from pilotage.core.slice_pace import SlicePace
from pilotage.services.pool.ids import IdAllocators
from pilotage.services.pool.state import Pool
from pilotage.services.submission.accept import (
    PreparedSubmission,
    begin,
    check_not_staged,
    check_same,
    save_progress,
)
from pilotage.services.submission.job_creation import ChunkRows, create_immediately
from pilotage.services.submission.quota import check_room, jobs_of
from pilotage.services.submission.used_uploads import use_files
from pilotage.store.tables import chunks as chunk_rows
from pilotage.store.tables import submissions as rows
from pilotage.store.tables.chunks import ChunkRow
from pilotage.store.tables.events import record
from pilotage.store.writer.transaction import Transaction
from pilotage.wire.submissions import MAX_JOBS_IN_CHUNKS

IDLE_TIMEOUT = 86400.0
"""Seconds after which an open submission without new rows is closed."""
MAX_CLOSED_PER_CALL = 100

log = logging.getLogger(__name__)


def check_description(description: JobDescription, names: Sequence[str], expected: int | None) -> None:
    """Refuse placeholders that need all rows in advance."""
    if expected is None and uses_job_number(description):
        raise InvalidInput(
            "%n needs the number of rows in advance, because it is padded to the width of the last number",
            hint="give the number of rows (`expected`), submit a file, or add a column with numbers",
        )
    own = per_job_columns(description, names)
    for name in inputs_with_placeholders(description, own):
        raise InvalidInput(
            f"the input {name} differs from job to job: such files cannot be uploaded for rows in chunks",
            hint="use a shared path, a URL, one directory for all jobs, or submissions of at most 5,000 jobs",
            field="input_sandbox",
        )


def open_submission(
    pool: Pool, tx: Transaction, prepared: PreparedSubmission, now: float
) -> rows.SubmissionRow:
    """Open a submission, or return the submission that this owner has opened with the same key."""
    known = rows.by_key(tx.connection, prepared.owner, prepared.key)
    if known is None:
        return begin(pool, tx, prepared, rows.OPEN, now)
    check_not_staged(known)
    check_same(known, prepared)
    return known


def owned_submission(known: rows.SubmissionRow | None, id_: int, owner: str) -> rows.SubmissionRow:
    if known is None or known.owner != owner or known.state == rows.STAGED:
        hint = "only the owner of a submission can run its jobs again, or add to it"
        raise NotFound(f"{owner} has no submission {id_}", hint=hint)
    return known


def _lock(tx: Transaction, owner: str, id_: int) -> rows.SubmissionRow:
    """The submission, whose row is locked: no other server adds rows to it or closes it meanwhile."""
    locked = rows.lock(tx.connection, [SubmissionId(id_)])
    return owned_submission(locked[0] if locked else None, id_, owner)


def accept_chunk(
    pool: Pool,
    tx: Transaction,
    owner: str,
    id_: int,
    number: int,
    given: ChunkRows,
    now: float,
    pace: SlicePace,
) -> ChunkRow:
    """Store the rows of the next chunk; a chunk that is stored already is returned.

    If `pace` allows it, the jobs are created in this transaction too, so the rows need not be stored.
    """
    tx.lock(jobs_of(owner))
    submission = _lock(tx, owner, id_)
    known = chunk_rows.by_number(tx.connection, submission.id, number)
    if known is not None:
        _check_same_rows(known, given)
        return known
    _check_next(tx, submission, number, given.count)
    blocked = pool.jobs.submissions.get(tx, submission.id).description.begins_blocked
    check_room(pool.policy, tx, owner, given.count, blocked=blocked)
    first = _first_job(pool.ids, tx, submission, given.count)
    chunk = ChunkRow(submission.id, number, given.digest, first, given.count, 0, now)
    if given.count <= pace.size:
        pace.measured(given.count, lambda: create_immediately(pool, tx, chunk, given))
        chunk = replace(chunk, made=chunk.count)
    chunk_rows.insert(tx.connection, chunk, given.text)
    use_files(tx, owner, chunk, given.files)
    lowest = submission.first_job if submission.count else first
    grown = replace(submission, first_job=lowest, count=submission.count + given.count, touched=now)
    save_progress(tx, submission, grown)
    return chunk


def _check_same_rows(known: ChunkRow, given: ChunkRows) -> None:
    if known.digest != given.digest:
        raise Conflict(
            f"chunk {known.number} of submission {known.submission} was accepted before with other rows",
            hint="accepted rows cannot be changed: continue with the next rows, or submit with another key",
        )


def _first_job(ids: IdAllocators, tx: Transaction, submission: rows.SubmissionRow, count: int) -> JobId:
    """The first of `count` job ids: of the ids reserved for the submission, or of new ones."""
    if submission.expected is not None:
        return JobId(submission.first_job + submission.count)
    ids.rewind_on_rollback(tx)
    return JobId(ids.jobs.run(count))


def _check_next(tx: Transaction, submission: rows.SubmissionRow, number: int, count: int) -> None:
    if submission.state != rows.OPEN:
        raise Conflict(
            f"submission {submission.id} is closed, with {plural(submission.count, 'job')}",
            hint="send the remaining rows as a new submission with another key",
        )
    last = chunk_rows.last(tx.connection, submission.id)
    following = 0 if last is None else last.number + 1
    if number != following:
        raise Conflict(
            f"submission {submission.id} expects chunk {following} next, not {number}",
            hint="send chunks in the order of their numbers",
        )
    most = MAX_JOBS_IN_CHUNKS if submission.expected is None else submission.expected
    if submission.count + count > most:
        raise Conflict(
            f"submission {submission.id} may have at most {most:,} jobs; these rows exceed that",
            hint="send the other rows as a new submission with another key",
        )


def close(tx: Transaction, owner: str, id_: int, count: int, now: float) -> tuple[rows.SubmissionRow, int]:
    """Close a submission; returns (submission, its highest job id). `count` is the number of rows that were sent."""
    submission = _lock(tx, owner, id_)
    if count != submission.count:
        raise Conflict(
            f"submission {id_} has {plural(submission.count, 'row')}, but the client sent {count:,}",
            hint="submit again with the same key: the client then sends the missing rows",
        )
    last = chunk_rows.last(tx.connection, submission.id)
    if submission.state == rows.OPEN:
        if last is None:
            raise Conflict(f"submission {id_} has no rows", hint="send at least one row")
        closed = replace(submission, state=rows.CLOSED, touched=now)
        save_progress(tx, submission, closed)
        submission = closed
    return submission, submission.first_job + count - 1 if last is None else last.first_job + last.count - 1


def idle_submissions(tx: Transaction, now: float) -> list[SubmissionId]:
    """Some of the idle open submissions."""
    return rows.idle_open(tx.connection, now - IDLE_TIMEOUT, MAX_CLOSED_PER_CALL)


def close_idle_submissions(pool: Pool, tx: Transaction, ids: Sequence[SubmissionId], now: float) -> int:
    """Close the idle and open ones of these submissions; returns their number. Their jobs are not affected."""
    before = now - IDLE_TIMEOUT
    idle = [row for row in rows.lock(tx.connection, ids) if row.state == rows.OPEN and row.touched < before]
    for submission in idle:
        save_progress(tx, submission, replace(submission, state=rows.CLOSED))
        record(
            tx.connection,
            pool.ids.events,
            at=now,
            kind="left-open",
            actor="server",
            detail=f"submission {submission.id} is closed with {plural(submission.count, 'job')}: no more rows arrived",
        )
        log.warning("closed the idle submission %d with %d jobs", submission.id, submission.count)
    return len(idle)
