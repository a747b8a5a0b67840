"""The hot statements on jobs: load facts by id, save many moves with one statement each."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from operator import itemgetter
from typing import Any, NamedTuple

from pilotage.core.ids import JobId, PilotId, QueueId, SubmissionId
from pilotage.core.jobs.states import JobState
from pilotage.core.queues.indexed_queue import HeadsRequest
from pilotage.store.engine.bulk_statements import update
from pilotage.store.engine.connection import Connection, array_literal, in_list, lock_clause
from pilotage.store.tables import history
from pilotage.store.tables.pilots import PilotRow


class JobRow(NamedTuple):
    """What the hand-over decides upon."""

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


_COLUMNS = (
    "id, submission_id, queue_id, state, user_priority, epoch, attempt, failures, own_failures,"
    " pilot_id, finished_epoch, finished_digest, last_event, parameters"
)
_OLD_COLUMNS = _COLUMNS.replace("pilot_id", "NULL")
"""Of history: whoever had the last try, the job is with nobody."""
BATCH_SIZE = 1000
"""So many jobs are read with one statement."""

_STATES = {str(state): state for state in JobState}


def _to_job(values: tuple[Any, ...]) -> JobRow:
    return JobRow._make((*values[:3], _STATES[values[3]], *values[4:]))


def by_ids(connection: Connection, ids: Sequence[int], *, for_update: bool = True) -> dict[int, JobRow]:
    """The jobs of these ids that exist; `for_update`: no other transaction moves them before this one ends.

    One that is in history is as it was when it ended.
    """
    rows = _select_hot(connection, ids, for_update)
    missing = [id_ for id_ in ids if id_ not in rows] if len(rows) < len(ids) else []
    if missing:
        found = history.select(connection, _OLD_COLUMNS, missing)
        rows |= {values[0]: _to_job(values) for values in found}
        missing = [id_ for id_ in missing if id_ not in rows]
    if missing and connection.dialect != "sqlite":
        # Between the two questions another server may have put some of them back.
        rows |= _select_hot(connection, missing, for_update)
    return rows


def _select_hot(connection: Connection, ids: Sequence[int], for_update: bool) -> dict[int, JobRow]:
    lock = lock_clause(connection, "UPDATE") if for_update else ""
    if len(ids) == 1:
        found = connection.execute(f"SELECT {_COLUMNS} FROM jobs WHERE id = ?{lock}", (ids[0],))
    else:
        condition, value = in_list(connection, "id", ids)
        found = connection.execute(
            f"SELECT {_COLUMNS} FROM jobs WHERE {condition} ORDER BY id{lock}", (value,)
        )
    return {values[0]: _to_job(values) for values in found}


def of_pilot(connection: Connection, pilot: PilotId, *, for_update: bool = True) -> list[JobRow]:
    """What a pilot has: offered to it or held by it; by id. `for_update` as in `by_ids`."""
    row = connection.execute("SELECT jobs FROM pilots WHERE id = ?", (pilot,)).fetchone()
    offered = json.loads(row[0]) if row else []
    found = by_ids(connection, offered, for_update=for_update) if offered else {}
    return [found[job] for job in sorted(found) if found[job].pilot == pilot]


def having_jobs(connection: Connection, live: Iterable[PilotRow]) -> set[PilotId]:
    """Which of these pilots have any job."""
    with_list = [pilot for pilot in live if pilot.jobs]
    # As a rule it has the one that it was offered last.
    found = _pilots_of_jobs(connection, [pilot.jobs[-1] for pilot in with_list])
    others = [job for pilot in with_list if pilot.id not in found for job in pilot.jobs[:-1]]
    return found | _pilots_of_jobs(connection, others)


def _pilots_of_jobs(connection: Connection, offered: Sequence[int]) -> set[PilotId]:
    found: set[PilotId] = set()
    for begin in range(0, len(offered), BATCH_SIZE):
        condition, value = in_list(connection, "id", offered[begin : begin + BATCH_SIZE])
        sql = f"SELECT DISTINCT pilot_id FROM jobs WHERE pilot_id IS NOT NULL AND {condition}"
        found.update(PilotId(row[0]) for row in connection.execute(sql, (value,)))
    return found


def of_take(connection: Connection, pilot: PilotId, number: int) -> list[JobRow]:
    """The jobs of one take that are still offered; by id."""
    offered = [job for job in of_pilot(connection, pilot) if job.state is JobState.MATCHED]
    numbers = _column_by_id(connection, "take_number", [job.id for job in offered])
    return [job for job in offered if numbers[job.id] == number]


def _column_by_id(connection: Connection, column: str, ids: Sequence[int]) -> dict[int, Any]:
    if not ids:
        return {}
    condition, value = in_list(connection, "id", ids)
    return dict(connection.execute(f"SELECT id, {column} FROM jobs WHERE {condition}", (value,)).fetchall())


class WaitingJob(NamedTuple):
    """What an offer is made of: a waiting job, and its last event, which tells whether it still is what it was."""

    id: JobId
    submission: SubmissionId
    epoch: int
    last_event: int
    parameters: str | None


_QUEUE_HEADS = (
    "SELECT id, submission_id, epoch, last_event, parameters FROM jobs"
    " WHERE state = 'Waiting' AND queue_id = {} AND user_priority = {} AND id > {} ORDER BY id LIMIT {}"
)
_HEADS_OF_ONE_QUEUE = _QUEUE_HEADS.format(*"????")
_HEADS_OF_SEVERAL_QUEUES = (
    "SELECT place, found.* FROM unnest(?::bigint[], ?::bigint[], ?::bigint[], ?::bigint[])"
    " WITH ORDINALITY AS wanted(queue, weight, after, most, place),"
    f" LATERAL ({_QUEUE_HEADS.format('wanted.queue', 'wanted.weight', 'wanted.after', 'wanted.most')}) AS found"
    " ORDER BY place, found.id"
)


def queue_heads(connection: Connection, wanted: Sequence[HeadsRequest]) -> list[list[tuple[Any, ...]]]:
    """For each that is wanted the first jobs, by rising id: values of `WaitingJob`; PostgreSQL is asked once."""
    if connection.dialect == "sqlite" or len(wanted) < 2:
        return [connection.execute(_HEADS_OF_ONE_QUEUE, one).fetchall() for one in wanted]
    found: list[list[tuple[Any, ...]]] = [[] for _ in wanted]
    arrays = [array_literal(values, "bigint") for values in zip(*wanted, strict=True)]
    for place, *head in connection.execute(_HEADS_OF_SEVERAL_QUEUES, arrays):
        found[place - 1].append(tuple(head))
    return found


def last_id(connection: Connection) -> int:
    """The highest id of a job that is not of long ago."""
    return int(connection.execute("SELECT coalesce(max(id), 0) FROM jobs").fetchone()[0])


def of_live_pilots(connection: Connection) -> Iterator[JobRow]:
    """All jobs that live pilots have."""
    lists = connection.execute("SELECT jobs FROM pilots WHERE ended IS NULL AND jobs <> '[]'").fetchall()
    # A job that one pilot gave back is on the list of the next one too.
    ids = list(dict.fromkeys(job for row in lists for job in json.loads(row[0])))
    for begin in range(0, len(ids), BATCH_SIZE):
        for job in by_ids(connection, ids[begin : begin + BATCH_SIZE], for_update=False).values():
            if job.pilot is not None:
                yield job


class OfferedJob(NamedTuple):
    pilot: PilotId
    take_number: int
    at: float
    event: int
    job: JobId
    before: int
    """The job's last event until now."""


_OFFERED = update(
    "jobs",
    ("pilot_id", "take_number", "started", "last_event", "id", "before"),
    "state = 'Matched', epoch = epoch + 1, pilot_id = {pilot_id}, take_number = {take_number}, started = {started},"
    " last_event = {last_event}, reason = ''",
    "id = {id} AND last_event = {before} AND state = 'Waiting'",
    before="bigint",
)


_of_job = itemgetter(4)


def save_offered(connection: Connection, moves: Sequence[tuple[Any, ...]]) -> set[JobId]:
    """Give waiting jobs to pilots (values of `OfferedJob`).

    Returns the jobs that stay, since their rows are no more as memory has them.
    """
    # In one order, whoever else offers the same ones: or two servers would wait for each other.
    rows = moves if connection.dialect == "sqlite" else sorted(moves, key=_of_job)
    if connection.execute_bulk(_OFFERED, rows) == len(moves):
        return set()
    condition, value = in_list(connection, "id", [move[4] for move in moves])
    last = dict(connection.execute(f"SELECT id, last_event FROM jobs WHERE {condition}", (value,)).fetchall())
    return {JobId(job) for _, _, _, event, job, _ in moves if last.get(job) != event}


class HeldJob(NamedTuple):
    at: float
    event: int
    job: JobId


_HELD = update(
    "jobs",
    ("started", "last_event", "id"),
    "state = 'Running', attempt = attempt + 1, started = {started}, last_event = {last_event}",
    "id = {id}",
)


def save_held(connection: Connection, moves: Iterable[HeldJob]) -> None:
    connection.execute_bulk_later(_HELD, moves)


class FreedJob(NamedTuple):
    """Back to the queue, at once (`not_before` None, state Waiting) or later (Rescheduled)."""

    state: JobState
    not_before: float | None
    failures: int
    own_failures: int
    reason: str
    event: int
    job: JobId


_FREED = update(
    "jobs",
    ("state", "not_before", "failures", "own_failures", "reason", "last_event", "id"),
    "state = {state}, not_before = {not_before}, failures = {failures}, own_failures = {own_failures},"
    " reason = {reason}, last_event = {last_event}, pilot_id = NULL, take_number = NULL, started = NULL,"
    " ended = NULL, exit_code = NULL",
    "id = {id}",
)


def save_freed(connection: Connection, moves: Iterable[FreedJob]) -> None:
    connection.execute_bulk_later(_FREED, moves)


class EndedJob(NamedTuple):
    state: JobState
    failures: int
    own_failures: int
    reason: str
    exit_code: int | None
    at: float
    event: int
    job: JobId


_ENDED = update(
    "jobs",
    ("state", "failures", "own_failures", "reason", "exit_code", "ended", "last_event", "id"),
    "state = {state}, failures = {failures}, own_failures = {own_failures}, reason = {reason},"
    " exit_code = {exit_code}, ended = {ended}, last_event = {last_event}, pilot_id = NULL, take_number = NULL,"
    " not_before = NULL",
    "id = {id}",
)


def save_ended(connection: Connection, moves: Iterable[EndedJob]) -> None:
    connection.execute_bulk_later(_ENDED, moves)


class FinishTaken(NamedTuple):
    epoch: int
    digest: str
    job: JobId


_FINISH_TAKEN = update(
    "jobs",
    ("finished_epoch", "finished_digest", "id"),
    "finished_epoch = {finished_epoch}, finished_digest = {finished_digest}",
    "id = {id}",
)


def save_finish_taken(connection: Connection, moves: Iterable[FinishTaken]) -> None:
    """Remember what the finish of an epoch said, so that the same one again gets the same answer."""
    connection.execute_bulk_later(_FINISH_TAKEN, moves)


class CountedFailure(NamedTuple):
    failures: int
    own_failures: int
    job: JobId


_COUNTED = update(
    "jobs",
    ("failures", "own_failures", "id"),
    "failures = {failures}, own_failures = {own_failures}",
    "id = {id}",
)


def save_counted(connection: Connection, counts: Iterable[CountedFailure]) -> None:
    connection.execute_bulk_later(_COUNTED, counts)


class MovedJob(NamedTuple):
    """A move that changes nothing but the state."""

    state: JobState
    reason: str
    event: int
    job: JobId


_MOVED = update(
    "jobs",
    ("state", "reason", "last_event", "id"),
    "state = {state}, reason = {reason}, last_event = {last_event}",
    "id = {id}",
)


def save_moved(connection: Connection, moves: Iterable[MovedJob]) -> None:
    connection.execute_bulk_later(_MOVED, moves)


def save_queue(connection: Connection, job: JobId, queue: QueueId) -> None:
    """The job's own queue was forgotten: it will wait in this one."""
    connection.execute("UPDATE jobs SET queue_id = ? WHERE id = ?", (queue, job))


def due_for_retry(connection: Connection, now: float, most: int) -> list[JobRow]:
    """Rescheduled jobs whose delay is over."""
    sql = f"SELECT {_COLUMNS} FROM jobs WHERE not_before IS NOT NULL AND not_before <= ? LIMIT ?"
    sql += lock_clause(connection, "UPDATE SKIP LOCKED")
    return [_to_job(values) for values in connection.execute(sql, (now, most))]


def extend_offers(connection: Connection, seconds: float) -> None:
    """After an outage or a step of the clock: offers stand for as much longer."""
    offered = [job.id for job in of_live_pilots(connection) if job.state is JobState.MATCHED]
    for begin in range(0, len(offered), BATCH_SIZE):
        condition, value = in_list(connection, "id", offered[begin : begin + BATCH_SIZE])
        connection.execute(f"UPDATE jobs SET started = started + ? WHERE {condition}", (seconds, value))


def offer_times(connection: Connection, ids: Sequence[int]) -> dict[int, float]:
    """Since when these jobs are offered."""
    return _column_by_id(connection, "started", ids)


def stalled_pilots(connection: Connection) -> list[PilotId]:
    """Pilots whose jobs are shown as Stalled."""
    found = {job.pilot for job in of_live_pilots(connection) if job.state is JobState.STALLED}
    return [pilot for pilot in found if pilot is not None]
