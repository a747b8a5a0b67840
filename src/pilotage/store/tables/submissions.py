"""Submissions, their new jobs, task queues and uploads."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import inf
from typing import Any

from pilotage.core.ids import JobId, QueueId, SubmissionId
from pilotage.core.jobs.states import JobState
from pilotage.core.queues.identity import QueueIdentity
from pilotage.store.engine import bulk_statements
from pilotage.store.engine.connection import Connection, in_list, lock_clause
from pilotage.store.engine.decisions import decision, guarded, hint, overwrites
from pilotage.store.engine.rows import columns, insertion, values
from pilotage.store.tables import handed_outputs, job_counts, mails
from pilotage.store.tables.job_counts import NOT_COUNTED, CountChange

OPEN, STAGED, CLOSED = "open", "staged", "closed"
"""Open: more rows may come. Staged: rows are being stored, not accepted yet. Closed: complete."""


@dataclass(frozen=True, slots=True)
class SubmissionRow:
    """Data shared by the jobs of one submission. `description` and `inputs` are JSON texts."""

    id: SubmissionId
    owner: str
    group: str
    key: str | None
    submitted: float
    description: str
    inputs: str
    names: tuple[str, ...]
    job_name: str
    job_group: str
    job_type: str
    queue: QueueId
    first_job: JobId
    """The first reserved id. An open submission of unknown length reserves ids by chunk."""
    count: int
    """The number of accepted jobs; it grows while the submission is open."""
    warnings: tuple[str, ...]
    state: str = CLOSED
    touched: float = 0.0
    """The time of the last request for this submission."""
    expected: int | None = None
    """The number of jobs for which ids are reserved: of a whole submission, or announced at most."""
    request: int | None = None
    """The request that its jobs work for; None: they are a user's own."""


_COLUMNS = columns(SubmissionRow, group="grp", key="idempotency_key", queue="queue_id", request="request_id")


def insert(connection: Connection, submission: SubmissionRow) -> None:
    connection.execute_later(insertion("submissions", _COLUMNS), values(submission))


@guarded("state", "count")
def save_progress(connection: Connection, before: SubmissionRow, after: SubmissionRow) -> bool:
    """Store the columns that change while chunks arrive; False: the row is not as `before` any more."""
    sql = (
        "UPDATE submissions SET first_job = ?, count = ?, state = ?, touched = ?"
        " WHERE id = ? AND state = ? AND count = ?"
    )
    stored = (after.first_job, after.count, after.state, after.touched)
    return connection.execute(sql, (*stored, before.id, before.state, before.count)).rowcount == 1


def _to_submission(row: Sequence[Any]) -> SubmissionRow:
    stored: Any = SubmissionRow(*row)
    submission: SubmissionRow = replace(
        stored, names=tuple(json.loads(stored.names)), warnings=tuple(json.loads(stored.warnings))
    )
    return submission


@decision("the facts that are used without the row's lock never change")
def by_id(connection: Connection, submission: SubmissionId) -> SubmissionRow | None:
    row = connection.execute(f"SELECT {_COLUMNS} FROM submissions WHERE id = ?", (submission,)).fetchone()
    return _to_submission(row) if row else None


def lock(connection: Connection, submissions: Sequence[SubmissionId]) -> list[SubmissionRow]:
    """The existing submissions of these ids, in the order of their ids, locked until the transaction ends."""
    condition, value = in_list(connection, "id", submissions)
    sql = f"SELECT {_COLUMNS} FROM submissions WHERE {condition} ORDER BY id" + lock_clause(
        connection, "UPDATE"
    )
    return [_to_submission(row) for row in connection.execute(sql, (value,))]


@decision("the facts that are used without the row's lock never change")
def by_ids(connection: Connection, submissions: Sequence[SubmissionId]) -> list[SubmissionRow]:
    """The existing submissions of these ids."""
    condition, value = in_list(connection, "id", submissions)
    sql = f"SELECT {_COLUMNS} FROM submissions WHERE {condition}"
    return [_to_submission(row) for row in connection.execute(sql, (value,))]


@decision("the key of an owner is unique: of two insertions one is repeated, and finds the other")
def by_key(connection: Connection, owner: str, key: str) -> SubmissionRow | None:
    sql = f"SELECT {_COLUMNS} FROM submissions WHERE owner = ? AND idempotency_key = ?"
    row = connection.execute(sql, (owner, key)).fetchone()
    return _to_submission(row) if row else None


@hint("each submission is looked at again")
def with_unmade_jobs(connection: Connection, touched_before: float = inf) -> list[SubmissionId]:
    """Accepted submissions, closed or open, with jobs that are not created yet."""
    sql = (
        "SELECT DISTINCT c.submission_id FROM submission_chunks c JOIN submissions s ON s.id = c.submission_id"
        " WHERE c.made < c.count AND s.state <> 'staged' AND s.touched < ? ORDER BY 1"
    )
    return [SubmissionId(row[0]) for row in connection.execute(sql, (touched_before,))]


@hint("each submission is locked and looked at again")
def staged(connection: Connection, touched_before: float = inf) -> list[SubmissionId]:
    """Submissions that are staged, so not accepted."""
    sql = "SELECT id FROM submissions WHERE state = 'staged' AND touched < ?"
    return [SubmissionId(row[0]) for row in connection.execute(sql, (touched_before,))]


def delete_staged(connection: Connection, submission: SubmissionId) -> None:
    """Delete a submission that was not accepted. Its row is locked, and its chunks are deleted."""
    sql = "DELETE FROM submissions WHERE id = ? AND state = 'staged'"
    if connection.execute(sql, (submission,)).rowcount == 0:
        return
    handed_outputs.delete_of_submissions(connection, [submission])
    mails.delete_of_submissions(connection, [submission])


@hint("each submission is locked and looked at again")
def idle_open(connection: Connection, before: float, most: int) -> list[SubmissionId]:
    """Open submissions without a request since `before`."""
    sql = "SELECT id FROM submissions WHERE state = 'open' AND touched < ? ORDER BY touched LIMIT ?"
    return [SubmissionId(row[0]) for row in connection.execute(sql, (before, most))]


_JOBS = bulk_statements.insert(
    "jobs",
    (
        "id",
        "submission_id",
        "queue_id",
        "state",
        "user_priority",
        "parameters",
        "submitted",
        "last_event",
        "name",
        "owner",
    ),
)
_JOBS_OF_JSON = (
    "INSERT INTO jobs (id, submission_id, queue_id, state, user_priority, parameters, submitted, last_event, owner)"
    " SELECT ? + key, ?, ?, ?, ?, value, ?, ?, ? FROM json_each(?)"
)
# The rows are pairs of values and name.
_NAMED_JOBS_OF_JSON = (
    "INSERT INTO jobs (id, submission_id, queue_id, state, user_priority, parameters, submitted, last_event, owner,"
    " name) SELECT ? + key, ?, ?, ?, ?, json_extract(value, '$[0]'), ?, ?, ?, json_extract(value, '$[1]')"
    " FROM json_each(?)"
)


def insert_jobs(
    connection: Connection,
    submission: SubmissionRow,
    first: JobId,
    parameters: Sequence[str | None],
    user_priority: int,
    event: int,
    at: float,
    names: Sequence[str] | None = None,
    state: JobState = JobState.WAITING,
) -> None:
    """Insert jobs first, first + 1 ..., one for each of `parameters` (compact JSON lists or None).

    `names`: the jobs' own names; None: they have none.
    """
    s = submission
    new = CountChange.of(NOT_COUNTED, state, {s.id: len(parameters)})
    job_counts.append(connection, [new])
    if connection.dialect == "sqlite":
        # One library call for all rows takes a third of the time, and does not contend for the GIL at each row.
        texts = [text or "null" for text in parameters]
        sql = _JOBS_OF_JSON
        if names is not None:
            sql = _NAMED_JOBS_OF_JSON
            texts = [f"[{text},{json.dumps(name)}]" for text, name in zip(texts, names, strict=True)]
        rows = f"[{','.join(texts)}]"
        connection.execute(sql, (first, s.id, s.queue, str(state), user_priority, at, event, s.owner, rows))
        return
    connection.execute_bulk_later(
        _JOBS,
        [
            (
                *(first + place, s.id, s.queue, str(state), user_priority, values, at, event),
                None if names is None else names[place],
                s.owner,
            )
            for place, values in enumerate(parameters)
        ],
    )


@hint("ids of all servers are taken from one counter")
def last_ids(connection: Connection) -> tuple[int, int]:
    """(highest submission id, highest job id reserved for a submission)."""
    sql = "SELECT coalesce(max(id), 0), coalesce(max(first_job + coalesce(expected, count) - 1), 0) FROM submissions"
    row = connection.execute(sql).fetchone()
    sql = "SELECT coalesce(max(first_job + count - 1), 0) FROM submission_chunks"
    return int(row[0]), max(int(row[1]), int(connection.execute(sql).fetchone()[0]))


def find_queue(connection: Connection, identity: QueueIdentity) -> QueueId | None:
    """The queue of these requirements. No other server deletes it before this transaction ends."""
    row = _hold_queue(connection, identity)
    return QueueId(row[0]) if row else None


def _hold_queue(connection: Connection, identity: QueueIdentity) -> tuple[int, bool] | None:
    """The id of a queue, and whether it is marked as empty.

    The lock holds up the deletion, and no change of the mark. So two servers that hold a marked queue can both remove
    its mark: with a shared lock each would wait for the other.
    """
    sql = "SELECT id, empty_since FROM queues WHERE digest = ?" + lock_clause(connection, "KEY SHARE")
    row = connection.execute(sql, (identity.digest(),)).fetchone()
    return (int(row[0]), row[1] is not None) if row else None


def insert_queue(connection: Connection, identity: QueueIdentity, now: float) -> QueueId:
    sql = "INSERT INTO queues (digest, owner, grp, identity, created) VALUES (?, ?, ?, ?, ?) RETURNING id"
    values = (identity.digest(), identity.owner, identity.group, identity.to_json(), now)
    return QueueId(connection.execute(sql, values).fetchone()[0])


@guarded("id")
def keep_queue(connection: Connection, queue: QueueId) -> bool:
    """Mark a queue as used again, so that its row is not deleted before this transaction ends. False: it is deleted.

    The row is written in any case: another server that is deleting it waits, and then finds it used, or has won.
    """
    sql = "UPDATE queues SET empty_since = NULL WHERE id = ?"
    return connection.execute(sql, (queue,)).rowcount == 1


def get_or_insert_queue(connection: Connection, identity: QueueIdentity, now: float) -> QueueId:
    """The queue of these requirements, inserted if missing, and marked as used."""
    row = _hold_queue(connection, identity)
    if row is None:
        return insert_queue(connection, identity, now)
    queue, marked = row
    if marked:
        # A queue in use is not written, so that submissions of several servers to one queue do not wait for each other.
        sql = "UPDATE queues SET empty_since = NULL WHERE id = ? AND empty_since IS NOT NULL"
        connection.execute_later(sql, (queue,))
    return QueueId(queue)


@hint("it fills the memory of a server that starts")
def all_queues(connection: Connection) -> list[tuple[QueueId, QueueIdentity]]:
    rows = connection.execute("SELECT id, identity FROM queues").fetchall()
    return [(QueueId(row[0]), QueueIdentity.from_json(row[1])) for row in rows]


@decision("the identity of a queue never changes")
def queue_identity(connection: Connection, queue: QueueId) -> QueueIdentity | None:
    row = connection.execute("SELECT identity FROM queues WHERE id = ?", (queue,)).fetchone()
    return QueueIdentity.from_json(row[0]) if row else None


_HAS_UNFINISHED = (
    "(EXISTS (SELECT 1 FROM jobs WHERE jobs.queue_id = queues.id"
    " AND state IN ('Blocked', 'Held', 'Waiting', 'Matched', 'Taken', 'Running', 'Stalled', 'Completing',"
    " 'Rescheduled'))"
    " OR id IN (SELECT queue_id FROM submissions WHERE state <> 'closed')"
    " OR id IN (SELECT s.queue_id FROM submissions s JOIN submission_chunks c ON c.submission_id = s.id"
    " WHERE c.made < c.count))"
)
"""Whether the queue has jobs that may return to it, or jobs that are not created yet: its row must stay."""


@overwrites("the mark only begins a time; who takes a queue into use removes it")
def mark_empty_queues(connection: Connection, now: float) -> None:
    """Mark queues without unfinished jobs as empty. A queue that another server is taking into use is left out."""
    connection.execute(
        "UPDATE queues SET empty_since = ? WHERE id IN (SELECT id FROM queues WHERE empty_since IS NULL"
        f" AND NOT {_HAS_UNFINISHED} ORDER BY id{lock_clause(connection, 'NO KEY UPDATE SKIP LOCKED')})",
        (now,),
    )


_REASONS_OF_QUEUE = bulk_statements.delete("queue_reasons", ("queue_id",), "queue_id = {queue_id}")


@guarded("empty_since")
def delete_empty_queues(connection: Connection, before: float) -> list[QueueId]:
    """Delete queues that have been empty since `before`, and their wait reasons; returns their ids.

    A queue that another server is taking into use is left out. The others are locked before the look for their jobs:
    a transaction that puts a job into a queue holds its row, so the look sees that job.
    """
    sql = "SELECT id FROM queues WHERE empty_since IS NOT NULL AND empty_since < ? ORDER BY id"
    rows = connection.execute(sql + lock_clause(connection, "UPDATE SKIP LOCKED"), (before,)).fetchall()
    them, value = in_list(connection, "id", [row[0] for row in rows])
    connection.execute(f"UPDATE queues SET empty_since = NULL WHERE {them} AND {_HAS_UNFINISHED}", (value,))
    sql = f"DELETE FROM queues WHERE {them} AND empty_since IS NOT NULL RETURNING id"
    gone = [QueueId(row[0]) for row in connection.execute(sql, (value,)).fetchall()]
    connection.execute_bulk(_REASONS_OF_QUEUE, [(queue,) for queue in gone])
    return gone


def insert_upload(connection: Connection, owner: str, digest: str, size: int, now: float) -> None:
    sql = (
        "INSERT INTO uploads (owner, digest, size, uploaded) VALUES (?, ?, ?, ?)"
        " ON CONFLICT (owner, digest) DO NOTHING"
    )
    connection.execute(sql, (owner, digest, size, now))


@guarded("owner", "digest")
def renew_upload(connection: Connection, owner: str, digest: str, now: float) -> bool:
    """Restart the retention of an upload that a submission names. False: the owner has no such upload."""
    sql = "UPDATE uploads SET uploaded = ? WHERE owner = ? AND digest = ?"
    return connection.execute(sql, (now, owner, digest)).rowcount == 1


@guarded("owner")
def renew_uploads(connection: Connection, owner: str, digests: Sequence[str], now: float) -> int:
    """`renew_upload` for several distinct digests; returns the number of existing uploads."""
    them, value = in_list(connection, "digest", digests)
    sql = f"UPDATE uploads SET uploaded = ? WHERE owner = ? AND {them}"
    return connection.execute(sql, (now, owner, value)).rowcount


def upload_sizes(connection: Connection, owner: str, digests: Sequence[str]) -> dict[str, int]:
    """The sizes in bytes of this owner's uploads among `digests`."""
    them, value = in_list(connection, "digest", digests)
    sql = f"SELECT digest, size FROM uploads WHERE owner = ? AND {them}"
    return {row[0]: int(row[1]) for row in connection.execute(sql, (owner, value))}


def upload_size(connection: Connection, owner: str, digest: str) -> int | None:
    """The size in bytes of this owner's upload; None: there is none."""
    sql = "SELECT size FROM uploads WHERE owner = ? AND digest = ?"
    row = connection.execute(sql, (owner, digest)).fetchone()
    return int(row[0]) if row else None
