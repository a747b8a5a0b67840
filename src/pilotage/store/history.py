"""History: final jobs out of the way of the hot table. They come a slice at a time, and go back when they change.

A job is in one of the two tables, never in both: it changes over in one transaction, and what another server has
under its hands meanwhile is left for the next slice.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Any, NamedTuple

from pilotage.core.ids import JobId
from pilotage.store import chunks
from pilotage.store.connection import Connection, among, locked

_SHARED = (
    "id, submission_id, queue_id, state, user_priority, parameters, epoch, attempt, failures, own_failures,"
    " finished_epoch, finished_digest, reason, exit_code, submitted, started, ended, last_event"
)
_COLUMNS = f"{_SHARED}, owner, grp, job_name, job_group, job_type, pilot_id, site, ce, hostname"
_COUNTED = "ended, owner, grp, state"
_FROM_JOBS = (
    "SELECT "
    + ", ".join("a.started" if name == "started" else f"j.{name}" for name in _SHARED.split(", "))
    + ", s.owner, s.grp, s.job_name, s.job_group, s.job_type, p.id, coalesce(p.site, ''), coalesce(p.ce, ''),"
    " coalesce(p.hostname, '') FROM jobs j JOIN submissions s ON s.id = j.submission_id"
    " LEFT JOIN attempts a ON a.job_id = j.id AND a.epoch = j.epoch LEFT JOIN pilots p ON p.id = a.pilot_id"
)


def month_of(at: float) -> int:
    """Such as 202611, in UTC.

    >>> month_of(0.0)
    197001
    """
    day = datetime.fromtimestamp(at, UTC)
    return day.year * 100 + day.month


def move(connection: Connection, before: float, most: int) -> int:
    """Move jobs that ended before that instant out of the hot table, the first to end first; how many."""
    sql = "SELECT id FROM jobs WHERE ended IS NOT NULL AND ended < ? ORDER BY ended LIMIT ?"
    sql += locked(connection, "UPDATE SKIP LOCKED")
    ids = [row[0] for row in connection.execute(sql, (before, most))]
    if not ids:
        return 0
    them, value = among(connection, "j.id", ids)
    sql = f"INSERT INTO history ({_COLUMNS}) {_FROM_JOBS} WHERE {them} RETURNING {_COUNTED}"
    came = connection.execute(sql, (value,)).fetchall()
    them, value = among(connection, "id", ids)
    went = connection.execute(f"DELETE FROM jobs WHERE {them}", (value,)).rowcount
    if not len(came) == went == len(ids):
        raise RuntimeError(f"of {len(ids)} jobs {went} left the hot table and {len(came)} came to history")
    _count(connection, came, 1)
    return len(ids)


def recall(connection: Connection, ids: Sequence[int]) -> int:
    """Before jobs change: put those of them that are in history back into the hot table, as they were; how many."""
    if not ids:
        return 0
    them, value = among(connection, "id", ids)
    sql = f"SELECT id FROM history WHERE {them}" + locked(connection, "UPDATE")
    there = [row[0] for row in connection.execute(sql, (value,))]
    if there:
        them, value = among(connection, "id", there)
        connection.execute(
            f"INSERT INTO jobs ({_SHARED}) SELECT {_SHARED} FROM history WHERE {them}", (value,)
        )
        _delete(connection, there)
    return len(there)


class Tries(NamedTuple):
    """Those at a job of history."""

    job: JobId
    epoch: int
    """The highest ever given."""


def forget(connection: Connection, before: float, most: int) -> list[JobId]:
    """Delete jobs of history that ended before that instant, with their results, and submissions left without jobs.

    Of a submission that is open or still being made nothing goes. The newest submission stays, for no id is given
    twice.
    """
    sql = (
        "SELECT h.id, h.submission_id FROM history h JOIN submissions s ON s.id = h.submission_id"
        " WHERE h.ended < ? AND s.state = 'closed' AND NOT EXISTS (SELECT 1 FROM submission_chunks c"
        " WHERE c.submission_id = s.id AND c.made < c.count) ORDER BY h.ended LIMIT ?"
        + locked(connection, "UPDATE OF h SKIP LOCKED")
    )
    rows = connection.execute(sql, (before, most)).fetchall()
    if not rows:
        return []
    ids = [row[0] for row in rows]
    delete_results(connection, ids)
    _delete(connection, ids)
    _forget_submissions(connection, Counter(row[1] for row in rows))
    return [JobId(id_) for id_ in ids]


def _forget_submissions(connection: Connection, forgotten: Counter[int]) -> None:
    """So many jobs of each have gone: delete those that have none left."""
    connection.executemany(
        "UPDATE submissions SET forgotten = forgotten + ? WHERE id = ?",
        [(count, submission) for submission, count in forgotten.items()],
    )
    them, value = among(connection, "id", sorted(forgotten))
    gone = connection.execute(
        f"DELETE FROM submissions WHERE {them} AND id < (SELECT max(id) FROM submissions)"
        " AND NOT EXISTS (SELECT 1 FROM jobs WHERE jobs.submission_id = submissions.id)"
        " AND NOT EXISTS (SELECT 1 FROM history WHERE history.submission_id = submissions.id) RETURNING id",
        (value,),
    ).fetchall()
    if gone:
        chunks.forget(connection, [row[0] for row in gone])


def ended_since(connection: Connection, begin: float, before: float, most: int) -> list[tuple[Tries, float]]:
    """Jobs of history that ended in [begin, before), in the order of their end, with it.

    At least `most` where there are so many, and more where several ended at the last instant: all of that instant.
    """
    sql = "SELECT ended FROM history WHERE ended >= ? AND ended < ? ORDER BY ended LIMIT 1 OFFSET ?"
    row = connection.execute(sql, (begin, before, most - 1)).fetchone()
    sql = "SELECT id, epoch, ended FROM history WHERE ended >= ? AND ended < ? AND ended <= ? ORDER BY ended"
    found = connection.execute(sql, (begin, before, before if row is None else row[0]))
    return [(Tries(JobId(job), epoch), ended) for job, epoch, ended in found]


def delete_results(connection: Connection, jobs: Sequence[int]) -> None:
    """Of all tries at these jobs."""
    them, value = among(connection, "job_id", jobs)
    connection.execute(f"DELETE FROM results WHERE {them}", (value,))


def oldest_end_outside(connection: Connection) -> float | None:
    """When the first of the final jobs ended that are still in the hot table; None: there are none."""
    row = connection.execute("SELECT min(ended) FROM jobs WHERE ended IS NOT NULL").fetchone()
    return None if row[0] is None else float(row[0])


def totals(connection: Connection) -> dict[str, int]:
    """How many jobs in each state history has."""
    sql = "SELECT state, sum(jobs) FROM history_counts GROUP BY state"
    return {state: int(count) for state, count in connection.execute(sql) if count}


def _delete(connection: Connection, ids: Sequence[int]) -> None:
    them, value = among(connection, "id", ids)
    sql = f"DELETE FROM history WHERE {them} RETURNING {_COUNTED}"
    _count(connection, connection.execute(sql, (value,)).fetchall(), -1)


def _count(connection: Connection, rows: Iterable[Sequence[Any]], sign: int) -> None:
    """Have the counts know of rows of history that have come (1) or gone (-1), each as `_COUNTED`."""
    counted = Counter((month_of(row[0]), row[1], row[2], row[3]) for row in rows)
    connection.executemany(
        "INSERT INTO history_counts (month, owner, grp, state, jobs) VALUES (?, ?, ?, ?, ?)"
        " ON CONFLICT (month, owner, grp, state) DO UPDATE SET jobs = history_counts.jobs + excluded.jobs",
        [(*key, sign * count) for key, count in sorted(counted.items())],
    )
    if sign < 0:
        connection.execute("DELETE FROM history_counts WHERE jobs = 0")
