"""History: final jobs out of the way of the hot table. They come a slice at a time, and go back when they change.

A job is in one of the two tables, never in both: it changes over in one transaction, and what another server has
under its hands meanwhile is left for the next slice.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from pilotage.core.ids import JobId
from pilotage.store.engine.connection import Connection, Cursor, array_literal, in_list, lock_clause
from pilotage.store.tables import chunks, partitions

_SHARED = (
    "id, submission_id, queue_id, state, user_priority, parameters, epoch, attempt, failures, own_failures,"
    " finished_epoch, finished_digest, reason, exit_code, submitted, started, ended, last_event"
)
_COLUMNS = f"{_SHARED}, owner, grp, job_name, job_group, job_type, pilot_id, site, ce, hostname"
_COUNTED = "ended, owner, grp, state"
_FROM_JOBS = (
    "SELECT "
    + ", ".join("a.started" if name == "started" else f"j.{name}" for name in _SHARED.split(", "))
    + ", s.owner, s.grp, coalesce(j.name, s.job_name), s.job_group, s.job_type, p.id, coalesce(p.site, ''),"
    " coalesce(p.ce, ''), coalesce(p.hostname, '') FROM jobs j JOIN submissions s ON s.id = j.submission_id"
    " LEFT JOIN attempts a ON a.job_id = j.id AND a.epoch = j.epoch LEFT JOIN pilots p ON p.id = a.pilot_id"
)


def archive(connection: Connection, before: float, most: int) -> int:
    """Move jobs that ended before that instant out of the hot table, the first to end first; how many."""
    sql = "SELECT id FROM jobs WHERE ended IS NOT NULL AND ended < ? ORDER BY ended LIMIT ?"
    sql += lock_clause(connection, "UPDATE SKIP LOCKED")
    ids = [row[0] for row in connection.execute(sql, (before, most))]
    if not ids:
        return 0
    them, value = in_list(connection, "j.id", ids)
    sql = f"INSERT INTO history ({_COLUMNS}) {_FROM_JOBS} WHERE {them} RETURNING {_COUNTED}"
    came = connection.execute(sql, (value,)).fetchall()
    them, value = in_list(connection, "id", ids)
    went = connection.execute(f"DELETE FROM jobs WHERE {them}", (value,)).rowcount
    if not len(came) == went == len(ids):
        raise RuntimeError(f"of {len(ids)} jobs {went} left the hot table and {len(came)} came to history")
    _adjust_counts(connection, came, 1)
    return len(ids)


def restore(connection: Connection, ids: Sequence[int]) -> int:
    """Before jobs change: put those of them that are in history back into the hot table, as they were; how many."""
    if not ids:
        return 0
    them, value = in_list(connection, "id", ids)
    sql = f"SELECT id, ended FROM history WHERE {them}" + lock_clause(connection, "UPDATE")
    there = _EndedJobs.of(connection.execute(sql, (value,)).fetchall())
    if there.ids:
        them, values = there.condition(connection)
        # A name that is not that of the submission is the job's own.
        own = "nullif(job_name, (SELECT s.job_name FROM submissions s WHERE s.id = submission_id))"
        sql = f"INSERT INTO jobs ({_SHARED}, name) SELECT {_SHARED}, {own} FROM history WHERE {them}"
        connection.execute(sql, values)
        _delete_jobs(connection, there)
    return len(there.ids)


class _EndedJobs(NamedTuple):
    """Jobs of history, and between which instants they ended: months besides are not looked through for them."""

    ids: list[int]
    first: float
    last: float

    @classmethod
    def of(cls, rows: Sequence[Sequence[Any]]) -> _EndedJobs:
        """Of rows that begin with the id and end with the instant."""
        ends = [row[-1] for row in rows]
        return cls([row[0] for row in rows], min(ends, default=0.0), max(ends, default=0.0))

    def condition(self, connection: Connection) -> tuple[str, tuple[Any, ...]]:
        them, value = in_list(connection, "id", self.ids)
        if connection.dialect == "sqlite":
            return them, (value,)
        return f"{them} AND ended >= ? AND ended <= ?", (value, self.first, self.last)


def select(connection: Connection, columns: str, ids: Sequence[int]) -> Cursor:
    """Those jobs of `ids` that are in history."""
    if connection.dialect == "sqlite":
        them, value = in_list(connection, "id", ids)
        return connection.execute(f"SELECT {columns} FROM history WHERE {them}", (value,))
    # One at a time, up to the month that has it: half of what it takes to ask every month for all of them.
    sql = (
        "SELECT old.* FROM unnest(?::bigint[]) AS wanted(job) CROSS JOIN LATERAL"
        f" (SELECT {columns} FROM history WHERE id = wanted.job LIMIT 1) AS old"
    )
    return connection.execute(sql, (array_literal(ids, "bigint"),))


class JobEpoch(NamedTuple):
    """Those at a job of history."""

    job: JobId
    epoch: int
    """The highest ever given."""


def delete_expired(connection: Connection, before: float, most: int) -> list[JobId]:
    """Delete jobs of history that ended before that instant, with their results, and submissions left without jobs.

    Of a submission that is open or still being made nothing goes. The newest submission stays, for no id is given
    twice.
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
    _delete_jobs(connection, them)
    _count_deleted(connection, Counter(row[1] for row in rows))
    return [JobId(id_) for id_ in them.ids]


# --- a month as a whole: out of history first, where nobody finds it any more, then what hangs on its jobs, then itself


def expired_month(connection: Connection, before: float) -> int | None:
    """The first month of which all jobs ended before that instant, and no submission is open or still being made."""
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
    """In a transaction of its own: nobody finds the jobs of that month any more. Raises as `partitions.detach`."""
    partitions.detach(connection, "history", month)
    connection.execute("DELETE FROM history_counts WHERE month = ?", (month,))
    # Up to which id nothing hangs on its jobs any more.
    connection.execute("INSERT INTO counters (name, last) VALUES (?, 0)", (f"history_{month}",))


def delete_dependents(connection: Connection, most: int) -> list[JobId]:
    """Delete what hangs on at most so many jobs of months that were taken out, in the order of their ids; which."""
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
    """In a transaction: drop a month on whose jobs nothing hangs any more; whether there was one."""
    for month in partitions.detached_months(connection, "history"):
        if not _undeleted_jobs(connection, month, 1):
            partitions.drop(connection, "history", month)
            connection.execute("DELETE FROM counters WHERE name = ?", (f"history_{month}",))
            return True
    return False


def _undeleted_jobs(connection: Connection, month: int, most: int) -> list[tuple[int, int]]:
    """(job, submission) of jobs on which something may still hang, in the order of their ids."""
    return connection.execute(f"{undeleted_jobs(month)} ORDER BY id LIMIT ?", (most,)).fetchall()


def undeleted_jobs(month: int) -> str:
    """The query for (id, submission_id) of those jobs of a month that was taken out on which something may hang."""
    seen_to = f"SELECT last FROM counters WHERE name = 'history_{month}'"
    return f"SELECT id, submission_id FROM history_{month} WHERE id > coalesce(({seen_to}), 0)"


def _count_deleted(connection: Connection, forgotten: Counter[int]) -> None:
    """So many jobs of each have gone: delete those that have none left."""
    connection.executemany(
        "UPDATE submissions SET forgotten = forgotten + ? WHERE id = ?",
        [(count, submission) for submission, count in forgotten.items()],
    )
    them, value = in_list(connection, "id", sorted(forgotten))
    gone = connection.execute(
        f"DELETE FROM submissions WHERE {them} AND id < (SELECT max(id) FROM submissions)"
        " AND NOT EXISTS (SELECT 1 FROM jobs WHERE jobs.submission_id = submissions.id)"
        " AND NOT EXISTS (SELECT 1 FROM history WHERE history.submission_id = submissions.id) RETURNING id",
        (value,),
    ).fetchall()
    if gone:
        chunks.delete_of_submissions(connection, [row[0] for row in gone])


def ended_between(
    connection: Connection, begin: float, before: float, most: int
) -> list[tuple[JobEpoch, float]]:
    """Jobs of history that ended in [begin, before), in the order of their end, with it.

    At least `most` where there are so many, and more where several ended at the last instant: all of that instant.
    """
    sql = "SELECT ended FROM history WHERE ended >= ? AND ended < ? ORDER BY ended LIMIT 1 OFFSET ?"
    row = connection.execute(sql, (begin, before, most - 1)).fetchone()
    sql = "SELECT id, epoch, ended FROM history WHERE ended >= ? AND ended < ? AND ended <= ? ORDER BY ended"
    found = connection.execute(sql, (begin, before, before if row is None else row[0]))
    return [(JobEpoch(JobId(job), epoch), ended) for job, epoch, ended in found]


def delete_results(connection: Connection, jobs: Sequence[int]) -> None:
    """Of all tries at these jobs."""
    them, value = in_list(connection, "job_id", jobs)
    connection.execute(f"DELETE FROM results WHERE {them}", (value,))


def oldest_unarchived_end(connection: Connection) -> float | None:
    """When the first of the final jobs ended that are still in the hot table; None: there are none."""
    row = connection.execute("SELECT min(ended) FROM jobs WHERE ended IS NOT NULL").fetchone()
    return None if row[0] is None else float(row[0])


def totals(connection: Connection) -> dict[str, int]:
    """How many jobs in each state history has."""
    sql = "SELECT state, sum(jobs) FROM history_counts GROUP BY state"
    return {state: int(count) for state, count in connection.execute(sql) if count}


def _delete_jobs(connection: Connection, jobs: _EndedJobs) -> None:
    them, values = jobs.condition(connection)
    sql = f"DELETE FROM history WHERE {them} RETURNING {_COUNTED}"
    _adjust_counts(connection, connection.execute(sql, values).fetchall(), -1)


def _adjust_counts(connection: Connection, rows: Iterable[Sequence[Any]], sign: int) -> None:
    """Have the counts know of rows of history that have come (1) or gone (-1), each as `_COUNTED`."""
    counted = Counter((partitions.month_of(row[0]), row[1], row[2], row[3]) for row in rows)
    connection.executemany(
        "INSERT INTO history_counts (month, owner, grp, state, jobs) VALUES (?, ?, ?, ?, ?)"
        " ON CONFLICT (month, owner, grp, state) DO UPDATE SET jobs = history_counts.jobs + excluded.jobs",
        [(*key, sign * count) for key, count in sorted(counted.items())],
    )
    if sign < 0:
        connection.execute("DELETE FROM history_counts WHERE jobs = 0")
