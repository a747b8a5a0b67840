"""The archive of final jobs, which keeps the hot table `jobs` small.

Jobs are archived in slices, and are restored to `jobs` before they change. A job is always in exactly one of the two
tables: it moves in one transaction. Rows locked by another server are left for the next slice.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from pilotage.core.ids import JobId
from pilotage.store.engine.connection import Connection, Cursor, array_literal, in_list, lock_clause
from pilotage.store.engine.decisions import ONE_SERVER, decision, overwrites
from pilotage.store.engine.rows import columns
from pilotage.store.tables import (
    chains,
    chunks,
    handed_outputs,
    job_counts,
    mails,
    parallel_limits,
    partitions,
)
from pilotage.store.tables.job_counts import HOT, NOT_COUNTED, CountChange

_SHARED = (
    "id, submission_id, queue_id, state, user_priority, parameters, epoch, attempt, failures, own_failures,"
    " finished_epoch, finished_digest, reason, exit_code, submitted, started, ended, last_event, has_dependants"
)
_COLUMNS = f"{_SHARED}, owner, grp, job_name, job_group, job_type, pilot_id, site, ce, hostname"
_STARTED = "CASE WHEN a.ahead = 0 THEN a.started END"
_FROM_JOBS = (
    "SELECT "
    + ", ".join(_STARTED if name == "started" else f"j.{name}" for name in _SHARED.split(", "))
    + ", s.owner, s.grp, coalesce(j.name, s.job_name), s.job_group, s.job_type, p.id, coalesce(p.site, ''),"
    " coalesce(p.ce, ''), coalesce(p.hostname, '') FROM jobs j JOIN submissions s ON s.id = j.submission_id"
    " LEFT JOIN attempts a ON a.job_id = j.id AND a.epoch = j.epoch LEFT JOIN pilots p ON p.id = a.pilot_id"
)


def archive(connection: Connection, before: float, most: int) -> int:
    """Move jobs that ended before `before` from `jobs` to `history`, earliest end first; returns their number."""
    sql = "SELECT id FROM jobs WHERE ended IS NOT NULL AND ended < ? ORDER BY ended LIMIT ?"
    sql += lock_clause(connection, "UPDATE SKIP LOCKED")
    ids = [row[0] for row in connection.execute(sql, (before, most))]
    if not ids:
        return 0
    them, value = in_list(connection, "j.id", ids)
    sql = f"INSERT INTO history ({_COLUMNS}) {_FROM_JOBS} WHERE {them} RETURNING {_COUNTED}"
    came = [_Counted(*row) for row in connection.execute(sql, (value,))]
    them, value = in_list(connection, "id", ids)
    went = connection.execute(f"DELETE FROM jobs WHERE {them}", (value,)).rowcount
    if not len(came) == went == len(ids):
        raise RuntimeError(f"of {len(ids)} jobs {went} left the hot table and {len(came)} came to history")
    job_counts.append(
        connection, [*_changes(came, came=False, hot=True), *_changes(came, came=True, hot=False)]
    )
    return len(ids)


def restore(connection: Connection, ids: Sequence[int]) -> int:
    """Move jobs from `history` back to `jobs`, unchanged, before they change; returns their number."""
    if not ids:
        return 0
    them, value = in_list(connection, "id", ids)
    sql = f"SELECT id, ended FROM history WHERE {them} ORDER BY id" + lock_clause(connection, "UPDATE")
    there = _EndedJobs.of(connection.execute(sql, (value,)).fetchall())
    if there.ids:
        them, values = there.condition(connection)
        # A name that differs from the submission's name is the job's own.
        own = "nullif(job_name, (SELECT s.job_name FROM submissions s WHERE s.id = submission_id))"
        sql = (
            f"INSERT INTO jobs ({_SHARED}, name, owner, final_state)"
            f" SELECT {_SHARED}, {own}, owner, state FROM history WHERE {them}"
        )
        connection.execute(sql, values)
        went = _delete_jobs(connection, there)
        job_counts.append(
            connection, [*_changes(went, came=False, hot=False), *_changes(went, came=True, hot=True)]
        )
    return len(there.ids)


class _Counted(NamedTuple):
    """The columns that decide where an archived job is counted."""

    ended: float
    submission: int
    state: str


_COUNTED = columns(_Counted, submission="submission_id")


class _EndedJobs(NamedTuple):
    """Archived jobs with their first and last end, so that only partitions of these months are searched."""

    ids: list[int]
    first: float
    last: float

    @classmethod
    def of(cls, rows: Sequence[Sequence[Any]]) -> _EndedJobs:
        """From rows with the id in the first and the end in the last column."""
        ends = [row[-1] for row in rows]
        return cls([row[0] for row in rows], min(ends, default=0.0), max(ends, default=0.0))

    def condition(self, connection: Connection) -> tuple[str, tuple[Any, ...]]:
        them, value = in_list(connection, "id", self.ids)
        if connection.dialect == "sqlite":
            return them, (value,)
        return f"{them} AND ended >= ? AND ended <= ?", (value, self.first, self.last)


def select(connection: Connection, columns: str, ids: Sequence[int]) -> Cursor:
    """`columns` of the archived jobs of `ids`."""
    if connection.dialect == "sqlite":
        them, value = in_list(connection, "id", ids)
        return connection.execute(f"SELECT {columns} FROM history WHERE {them}", (value,))
    # One lookup per job stops at the partition that has it: half the cost of asking every partition for all jobs.
    sql = (
        "SELECT old.* FROM unnest(?::bigint[]) AS wanted(job) CROSS JOIN LATERAL"
        f" (SELECT {columns} FROM history WHERE id = wanted.job LIMIT 1) AS old"
    )
    return connection.execute(sql, (array_literal(ids, "bigint"),))


class JobEpoch(NamedTuple):
    """An archived job and its last epoch."""

    job: JobId
    epoch: int
    """The highest epoch that the job was given."""


def delete_expired(connection: Connection, before: float, most: int) -> list[JobId]:
    """Delete archived jobs that ended before `before`, their results, and submissions left without jobs.

    Jobs of open or incomplete submissions stay. The newest submission stays, so that no id is given twice.
    """
    sql = (
        "SELECT h.id, h.submission_id, h.ended FROM history h JOIN submissions s ON s.id = h.submission_id"
        " WHERE h.ended < ? AND s.state = 'closed' AND NOT EXISTS (SELECT 1 FROM submission_chunks c"
        " WHERE c.submission_id = s.id AND c.made < c.count) ORDER BY h.ended LIMIT ?"
        + lock_clause(connection, "UPDATE OF h SKIP LOCKED")
    )
    rows = connection.execute(sql, (before, most)).fetchall()
    if not rows:
        return []
    them = _EndedJobs.of(rows)
    delete_results(connection, them.ids)
    gone = _delete_jobs(connection, them)
    job_counts.append(connection, _changes(gone, came=False, hot=False))
    _count_deleted(connection, Counter(row[1] for row in rows))
    return [JobId(id_) for id_ in them.ids]


# --- a whole month: its partition is detached, then dependent rows of its jobs are deleted, then it is dropped


def expired_month(connection: Connection, before: float) -> int | None:
    """The first month before `before` without jobs of open or incomplete submissions."""
    for month in partitions.expired_months(connection, "history", before):
        needed = connection.execute(
            f"SELECT 1 FROM history_{month} h WHERE h.submission_id = ANY (ARRAY("
            "SELECT id FROM submissions WHERE state <> 'closed' UNION"
            " SELECT submission_id FROM submission_chunks WHERE made < count)) LIMIT 1"
        ).fetchone()
        if needed is None:
            return month
    return None


def detach_month(connection: Connection, month: int) -> None:
    """Detach a month, so that no query finds its jobs. Needs its own transaction. Raises as `partitions.detach`."""
    partitions.detach(connection, "history", month)
    job_counts.delete_month(connection, month)
    # Dependent rows of jobs up to this id are deleted.
    connection.execute("INSERT INTO counters (name, last) VALUES (?, 0)", (f"history_{month}",))


def delete_dependents(connection: Connection, most: int) -> list[JobId]:
    """Delete dependent rows of at most `most` jobs of detached months, by id; returns these jobs."""
    gone: list[JobId] = []
    for month in partitions.detached_months(connection, "history"):
        rows = _undeleted_jobs(connection, month, most - len(gone))
        if rows:
            delete_results(connection, [row[0] for row in rows])
            _count_deleted(connection, Counter(row[1] for row in rows))
            sql = "UPDATE counters SET last = ? WHERE name = ?"
            connection.execute(sql, (rows[-1][0], f"history_{month}"))
            gone += [JobId(row[0]) for row in rows]
    return gone


def drop_detached_month(connection: Connection) -> bool:
    """Drop one detached month without dependent rows; False: there is none. Needs a transaction."""
    for month in partitions.detached_months(connection, "history"):
        if not _undeleted_jobs(connection, month, 1):
            partitions.drop(connection, "history", month)
            connection.execute("DELETE FROM counters WHERE name = ?", (f"history_{month}",))
            return True
    return False


def _undeleted_jobs(connection: Connection, month: int, most: int) -> list[tuple[int, int]]:
    """(job, submission) of jobs of a detached month that may have dependent rows, by id."""
    return connection.execute(f"{undeleted_jobs(month)} ORDER BY id LIMIT ?", (most,)).fetchall()


def undeleted_jobs(month: int) -> str:
    """The query for (id, submission_id) of jobs of a detached month that may have dependent rows."""
    progress = f"SELECT last FROM counters WHERE name = 'history_{month}'"
    return f"SELECT id, submission_id FROM history_{month} WHERE id > coalesce(({progress}), 0)"


def _count_deleted(connection: Connection, forgotten: Counter[int]) -> None:
    """Add deleted jobs to the counters of their submissions, and delete submissions without remaining jobs."""
    connection.executemany(
        "UPDATE submissions SET forgotten = forgotten + ? WHERE id = ?",
        [(count, submission) for submission, count in forgotten.items()],
    )
    them, value = in_list(connection, "id", sorted(forgotten))
    rows = connection.execute(
        f"SELECT id FROM submissions WHERE {them} AND id < (SELECT max(id) FROM submissions)"
        " AND NOT EXISTS (SELECT 1 FROM submission_chunks c JOIN jobs j ON j.id >= c.first_job"
        " AND j.id < c.first_job + c.count WHERE c.submission_id = submissions.id)"
        " AND NOT EXISTS (SELECT 1 FROM history WHERE history.submission_id = submissions.id)",
        (value,),
    )
    gone = [row[0] for row in rows]
    if gone:
        job_counts.add_all(connection)
        them, value = in_list(connection, "id", gone)
        connection.execute(f"DELETE FROM submissions WHERE {them}", (value,))
        chunks.delete_of_submissions(connection, gone)
        chains.delete_of_submissions(connection, gone)
        parallel_limits.delete_of_submissions(connection, gone)
        handed_outputs.delete_of_submissions(connection, gone)
        mails.delete_of_submissions(connection, gone)


@decision(ONE_SERVER)
def ended_between(
    connection: Connection, begin: float, before: float, most: int
) -> list[tuple[JobEpoch, float]]:
    """Archived jobs that ended in [begin, before), with their ends, in that order.

    At most `most` jobs, and all further jobs with the same end as the last one.
    """
    sql = "SELECT ended FROM history WHERE ended >= ? AND ended < ? ORDER BY ended LIMIT 1 OFFSET ?"
    row = connection.execute(sql, (begin, before, most - 1)).fetchone()
    sql = "SELECT id, epoch, ended FROM history WHERE ended >= ? AND ended < ? AND ended <= ? ORDER BY ended"
    rows = connection.execute(sql, (begin, before, before if row is None else row[0]))
    return [(JobEpoch(JobId(job), epoch), ended) for job, epoch, ended in rows]


@overwrites(ONE_SERVER)
def delete_results(connection: Connection, jobs: Sequence[int]) -> None:
    """Delete the results of all attempts at these jobs."""
    them, value = in_list(connection, "job_id", jobs)
    connection.execute(f"DELETE FROM results WHERE {them}", (value,))


@decision(ONE_SERVER)
def oldest_unarchived_end(connection: Connection) -> float | None:
    """The earliest end of a final job in the hot table; None: there is no such job."""
    row = connection.execute("SELECT min(ended) FROM jobs WHERE ended IS NOT NULL").fetchone()
    return None if row[0] is None else float(row[0])


def _delete_jobs(connection: Connection, jobs: _EndedJobs) -> list[_Counted]:
    """Delete these rows of the history; returns the values of `_COUNTED`."""
    them, values = jobs.condition(connection)
    sql = f"DELETE FROM history WHERE {them} RETURNING {_COUNTED}"
    return [_Counted(*row) for row in connection.execute(sql, values)]


def _changes(jobs: Iterable[_Counted], *, came: bool, hot: bool) -> list[CountChange]:
    """The changes of the counters: jobs came into a table, or left it.

    `hot`: it is the hot table; else the history.
    """
    groups: dict[tuple[int, str], Counter[int]] = {}
    for ended, submission, state in jobs:
        month = HOT if hot else partitions.month_of(ended)
        groups.setdefault((month, state), Counter())[submission] += 1
    return [
        CountChange.of(NOT_COUNTED, state, numbers, month)
        if came
        else CountChange.of(state, NOT_COUNTED, numbers, month)
        for (month, state), numbers in groups.items()
    ]
