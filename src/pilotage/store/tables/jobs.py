"""The hot statements on jobs: load rows by id, and save many transitions with one statement per kind."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from pilotage.core.ids import JobId, PilotId, QueueId, SubmissionId
from pilotage.core.jobs.states import JobState
from pilotage.core.queues.indexed_queue import HeadsRequest
from pilotage.store.engine.bulk_statements import RowWriter, update
from pilotage.store.engine.connection import Connection, array_literal, in_list, lock_clause
from pilotage.store.engine.decisions import guarded, hint
from pilotage.store.engine.rows import columns
from pilotage.store.tables import history
from pilotage.store.tables.pilots import PilotRow


class JobRow(NamedTuple):
    """The columns that the hand-over needs."""

    id: JobId
    submission: SubmissionId
    queue: QueueId
    state: JobState
    user_priority: int
    epoch: int
    attempt: int
    failures: int
    own_failures: int
    pilot: PilotId | None
    finished_epoch: int
    finished_digest: str
    last_event: int
    parameters: str | None
    has_dependants: int = 0
    """1: other jobs depend on its end, or may do so."""


_COLUMNS = columns(JobRow, submission="submission_id", queue="queue_id", pilot="pilot_id")
_OLD_COLUMNS = _COLUMNS.replace("pilot_id", "NULL")
"""The columns of an archived job, which no pilot holds."""
BATCH_SIZE = 1000
"""Jobs read per statement."""

_STATES = {str(state): state for state in JobState}


def _to_job(values: tuple[Any, ...]) -> JobRow:
    return JobRow._make((*values[:3], _STATES[values[3]], *values[4:]))


def by_ids(connection: Connection, ids: Sequence[int], *, for_update: bool = True) -> dict[int, JobRow]:
    """The existing jobs of these ids. `for_update`: lock them until this transaction ends.

    Archived jobs are returned as they ended.
    """
    rows = _select_hot(connection, ids, for_update)
    missing = [id_ for id_ in ids if id_ not in rows] if len(rows) < len(ids) else []
    if missing:
        archived = history.select(connection, _OLD_COLUMNS, missing)
        rows |= {values[0]: _to_job(values) for values in archived}
        missing = [id_ for id_ in missing if id_ not in rows]
    if missing and connection.dialect != "sqlite":
        # Another server may have restored jobs from the archive between the two statements.
        rows |= _select_hot(connection, missing, for_update)
    return rows


def _select_hot(connection: Connection, ids: Sequence[int], for_update: bool) -> dict[int, JobRow]:
    lock = lock_clause(connection, "UPDATE") if for_update else ""
    if len(ids) == 1:
        rows = connection.execute(f"SELECT {_COLUMNS} FROM jobs WHERE id = ?{lock}", (ids[0],))
    else:
        condition, value = in_list(connection, "id", ids)
        rows = connection.execute(
            f"SELECT {_COLUMNS} FROM jobs WHERE {condition} ORDER BY id{lock}", (value,)
        )
    return {values[0]: _to_job(values) for values in rows}


@hint("the ids of their jobs; each job is locked and looked at again")
def of_pilots(connection: Connection, pilots: Sequence[PilotId], *, for_update: bool = True) -> list[JobRow]:
    """The jobs offered to or held by pilots, by id. A transaction that takes jobs of several pilots locks all first."""
    asked, (condition, value) = set(pilots), in_list(connection, "id", pilots)
    lists = connection.execute(f"SELECT jobs FROM pilots WHERE {condition}", (value,)) if asked else ()
    offered = sorted({job for row in lists for job in json.loads(row[0])})
    rows = by_ids(connection, offered, for_update=for_update) if offered else {}
    return [rows[job] for job in sorted(rows) if rows[job].pilot in asked]


@hint("the pilot is told to leave, and leaves after its job")
def having_jobs(connection: Connection, live: Iterable[PilotRow]) -> set[PilotId]:
    """The pilots among `live` that have a job."""
    with_list = [pilot for pilot in live if pilot.jobs]
    # Usually a pilot holds the job that it was offered last.
    pilots = _pilots_of_jobs(connection, [pilot.jobs[-1] for pilot in with_list])
    others = [job for pilot in with_list if pilot.id not in pilots for job in pilot.jobs[:-1]]
    return pilots | _pilots_of_jobs(connection, others)


def _pilots_of_jobs(connection: Connection, offered: Sequence[int]) -> set[PilotId]:
    pilots: set[PilotId] = set()
    for begin in range(0, len(offered), BATCH_SIZE):
        condition, value = in_list(connection, "id", offered[begin : begin + BATCH_SIZE])
        sql = f"SELECT DISTINCT pilot_id FROM jobs WHERE pilot_id IS NOT NULL AND {condition}"
        pilots.update(PilotId(row[0]) for row in connection.execute(sql, (value,)))
    return pilots


@hint("each job is locked and looked at again")
def of_take(connection: Connection, pilot: PilotId, number: int) -> list[JobRow]:
    """The jobs of one take that are offered and not confirmed, by id."""
    offered = [job for job in of_pilots(connection, [pilot]) if job.state is JobState.MATCHED]
    numbers = _column_by_id(connection, "take_number", [job.id for job in offered])
    return [job for job in offered if numbers[job.id] == number]


def _column_by_id(connection: Connection, column: str, ids: Sequence[int]) -> dict[int, Any]:
    condition, value = in_list(connection, "id", ids)
    sql = f"SELECT id, {column} FROM jobs WHERE {condition}"
    return dict(connection.execute(sql, (value,)).fetchall()) if ids else {}


class WaitingJob(NamedTuple):
    """A waiting job to be offered. Its last event shows later whether the job has changed."""

    id: JobId
    submission: SubmissionId
    epoch: int
    last_event: int
    parameters: str | None


_WAITING_JOB = columns(WaitingJob, submission="submission_id")


_QUEUE_HEADS = (
    f"SELECT {_WAITING_JOB} FROM jobs"
    " WHERE state = 'Waiting' AND queue_id = {} AND user_priority = {} AND id > {} ORDER BY id LIMIT {}"
)
_HEADS_OF_ONE_QUEUE = _QUEUE_HEADS.format(*"????")
_HEADS_OF_SEVERAL_QUEUES = (
    "SELECT place, found.* FROM unnest(?::bigint[], ?::bigint[], ?::bigint[], ?::bigint[])"
    " WITH ORDINALITY AS wanted(queue, weight, after, most, place),"
    f" LATERAL ({_QUEUE_HEADS.format('wanted.queue', 'wanted.weight', 'wanted.after', 'wanted.most')}) AS found"
    " ORDER BY place, found.id"
)


@hint("an offer decides on the job's row")
def queue_heads(connection: Connection, wanted: Sequence[HeadsRequest]) -> list[list[tuple[Any, ...]]]:
    """The first jobs for each element of `wanted`, by id, as values of `WaitingJob`.

    PostgreSQL executes one statement for all elements.
    """
    if connection.dialect == "sqlite" or len(wanted) < 2:
        return [connection.execute(_HEADS_OF_ONE_QUEUE, request).fetchall() for request in wanted]
    heads: list[list[tuple[Any, ...]]] = [[] for _ in wanted]
    arrays = [array_literal(values, "bigint") for values in zip(*wanted, strict=True)]
    for place, *head in connection.execute(_HEADS_OF_SEVERAL_QUEUES, arrays):
        heads[place - 1].append(tuple(head))
    return heads


@hint("later jobs have change rows")
def last_id(connection: Connection) -> int:
    """The highest id of a job that is not archived; 0: there is none."""
    return int(connection.execute("SELECT coalesce(max(id), 0) FROM jobs").fetchone()[0])


class OfferedJobRow(NamedTuple):
    pilot: PilotId
    take_number: int
    at: float
    event: int
    job: JobId
    before: int
    """The job's last event before the offer."""


_OFFERED = update(
    "jobs",
    ("pilot_id", "take_number", "started", "last_event", "id", "before"),
    "state = 'Matched', epoch = epoch + 1, pilot_id = {pilot_id}, take_number = {take_number}, started = {started},"
    " last_event = {last_event}, reason = ''",
    "id = {id} AND last_event = {before} AND state = 'Waiting'",
    returning="id, last_event",
    before="bigint",
)
_NOT_LOCKED = " AND id IN (SELECT id FROM jobs WHERE id = ANY ($5::bigint[]) FOR NO KEY UPDATE SKIP LOCKED)"
"""$5 has the ids of `_OFFERED`."""
_OFFERED_BESIDE_OTHERS = replace(_OFFERED, postgresql=_OFFERED.postgresql + _NOT_LOCKED)


@guarded("last_event")
def save_offered(connection: Connection, moves: Sequence[tuple[Any, ...]]) -> set[JobId]:
    """Offer waiting jobs to pilots. `moves`: values of `OfferedJobRow`.

    Returns the jobs that were not offered: their rows differ from the state in memory, or another server changes them
    at this instant. It never waits for another server: two that offer jobs of one queue would end in a deadlock.
    """
    if connection.dialect == "sqlite" and connection.execute_bulk(_OFFERED, moves) == len(moves):
        return set()
    if connection.dialect == "postgresql":
        offered = set(connection.execute_bulk_returning(_OFFERED_BESIDE_OTHERS, moves))
    else:
        condition, value = in_list(connection, "id", [move[4] for move in moves])
        sql = f"SELECT id, last_event FROM jobs WHERE {condition}"
        offered = set(connection.execute(sql, (value,)).fetchall())
    return {JobId(job) for _, _, _, event, job, _ in moves if (job, event) not in offered}


class HeldJob(NamedTuple):
    state: JobState
    at: float
    event: int
    job: JobId


save_held = RowWriter[HeldJob](
    update(
        "jobs",
        ("state", "started", "last_event", "id"),
        "state = {state}, attempt = attempt + 1, started = {started}, last_event = {last_event}",
        "id = {id}",
    )
)


class FreedJob(NamedTuple):
    """A job that returns to its queue, at once (`not_before` None, state Waiting) or later (Rescheduled)."""

    state: JobState
    not_before: float | None
    failures: int
    own_failures: int
    reason: str
    event: int
    job: JobId


save_freed = RowWriter[FreedJob](
    update(
        "jobs",
        ("state", "not_before", "failures", "own_failures", "reason", "last_event", "id"),
        "state = {state}, not_before = {not_before}, failures = {failures}, own_failures = {own_failures},"
        " reason = {reason}, last_event = {last_event}, pilot_id = NULL, take_number = NULL, started = NULL,"
        " ended = NULL, exit_code = NULL, final_state = ''",
        "id = {id}",
    )
)


class ResumedJob(NamedTuple):
    """A job that goes on with the pilot whose lease had run out."""

    state: JobState
    pilot: PilotId
    at: float
    failures: int
    event: int
    job: JobId


save_resumed = RowWriter[ResumedJob](
    update(
        "jobs",
        ("state", "pilot_id", "started", "failures", "last_event", "id"),
        "state = {state}, pilot_id = {pilot_id}, started = {started}, failures = {failures}, reason = '',"
        " not_before = NULL, last_event = {last_event}",
        "id = {id}",
    )
)


class EndedJob(NamedTuple):
    state: JobState
    failures: int
    own_failures: int
    reason: str
    exit_code: int | None
    at: float
    event: int
    job: JobId


save_ended = RowWriter[EndedJob](
    update(
        "jobs",
        ("state", "failures", "own_failures", "reason", "exit_code", "ended", "last_event", "id"),
        "state = {state}, final_state = {state}, failures = {failures}, own_failures = {own_failures},"
        " reason = {reason}, exit_code = {exit_code}, ended = {ended}, last_event = {last_event}, pilot_id = NULL,"
        " take_number = NULL, not_before = NULL",
        "id = {id}",
    )
)


class AcceptedFinish(NamedTuple):
    epoch: int
    digest: str
    job: JobId


save_accepted_finishes = RowWriter[AcceptedFinish](
    update(
        "jobs",
        ("finished_epoch", "finished_digest", "id"),
        "finished_epoch = {finished_epoch}, finished_digest = {finished_digest}",
        "id = {id}",
    )
)
"""Store the digest of an accepted finish, so that a repeated finish gets the same answer."""


class FailureCounts(NamedTuple):
    failures: int
    own_failures: int
    job: JobId


save_failure_counts = RowWriter[FailureCounts](
    update(
        "jobs",
        ("failures", "own_failures", "id"),
        "failures = {failures}, own_failures = {own_failures}",
        "id = {id}",
    )
)


class StateChange(NamedTuple):
    """A transition that changes only the state."""

    state: JobState
    reason: str
    event: int
    job: JobId


save_state_changes = RowWriter[StateChange](
    update(
        "jobs",
        ("state", "reason", "last_event", "id"),
        "state = {state}, reason = {reason}, last_event = {last_event}",
        "id = {id}",
    )
)

save_superseded = RowWriter[StateChange](
    update(
        "jobs",
        ("state", "reason", "last_event", "id"),
        "state = {state}, final_state = {state}, reason = {reason}, last_event = {last_event}",
        "id = {id}",
    )
)
"""The `save_state_changes` from one final state to another."""


class MovedJob(NamedTuple):
    queue: QueueId
    user_priority: int
    event: int
    job: JobId


save_moved = RowWriter[MovedJob](
    update(
        "jobs",
        ("queue_id", "user_priority", "last_event", "id"),
        "queue_id = {queue_id}, user_priority = {user_priority}, last_event = {last_event}",
        "id = {id}",
    )
)
"""Let jobs wait in another queue, or with another UserPriority, now or when they wait again."""


def change_queue(connection: Connection, job: JobId, queue: QueueId) -> None:
    """Assign another queue to a job whose queue was deleted."""
    connection.execute("UPDATE jobs SET queue_id = ? WHERE id = ?", (queue, job))


def due_for_retry(
    connection: Connection, now: float, most: int, only: Sequence[JobId] | None = None
) -> list[JobRow]:
    """Rescheduled jobs whose retry delay is over, locked. `only`: of these jobs."""
    among, values = ("", ()) if only is None else in_list(connection, "id", list(only))
    where = "WHERE not_before IS NOT NULL AND not_before <= ?" + (f" AND {among}" if among else "")
    sql = f"SELECT {_COLUMNS} FROM jobs {where} LIMIT ?" + lock_clause(connection, "UPDATE SKIP LOCKED")
    rows = connection.execute(sql, (now, most) if only is None else (now, values, most))
    return [_to_job(row) for row in rows]


def offer_times(connection: Connection, ids: Sequence[int]) -> dict[int, float]:
    """The times of the offers of these jobs."""
    return _column_by_id(connection, "started", ids)
