"""The changes of rows by which repairs mend jobs, submissions and pilots. Each function takes the ids of its check."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from pilotage.core.ids import JobId, SubmissionId
from pilotage.core.jobs.states import CONFIRMED, FINAL
from pilotage.core.pilots.states import FINAL as FINAL_OF_PILOTS
from pilotage.store.engine.connection import Connection, in_list
from pilotage.store.integrity.chains import gone
from pilotage.store.integrity.check import quoted
from pilotage.store.integrity.jobs import about_job
from pilotage.store.integrity.submissions import TABLES
from pilotage.store.tables import usage
from pilotage.store.tables.attempts import LEASE_OVER, InterruptedAttempt, save_interrupted
from pilotage.store.tables.chains import ConditionRow

_FINAL: Final = quoted(FINAL)
_HELD: Final = quoted(CONFIRMED)


def delete_archived(connection: Connection, jobs: Sequence[int]) -> None:
    """Delete the archived rows of jobs that are not archived."""
    them, value = in_list(connection, "id", jobs)
    connection.execute(f"DELETE FROM history WHERE {them}", (value,))


def with_own_last_event(connection: Connection, jobs: Sequence[int]) -> set[int]:
    """The jobs among these whose last event is about them."""
    them, value = in_list(connection, "j.id", jobs)
    sql = f"SELECT j.id FROM jobs j JOIN events e ON e.id = j.last_event WHERE {them} AND {about_job(connection)}"
    return {row[0] for row in connection.execute(sql, (value,))}


def set_last_event(connection: Connection, job: int, event: int) -> None:
    connection.execute("UPDATE jobs SET last_event = ? WHERE id = ?", (event, job))


def take_pilots_away(connection: Connection, jobs: Sequence[int]) -> None:
    them, value = in_list(connection, "id", jobs)
    connection.execute(f"UPDATE jobs SET pilot_id = NULL, take_number = NULL WHERE {them}", (value,))


def close_attempts(connection: Connection, jobs: Sequence[int], now: float) -> None:
    """End the open attempts of these jobs that nobody has, when their pilot or their job has ended."""
    them, value = in_list(connection, "a.job_id", jobs)
    rows = connection.execute(
        "SELECT coalesce(p.ended, k.ended, ?), a.job_id, a.epoch, a.started FROM attempts a LEFT JOIN jobs j"
        f" ON j.id = a.job_id AND j.epoch = a.epoch AND j.state IN ({_HELD}) LEFT JOIN pilots p ON p.id = a.pilot_id"
        f" LEFT JOIN jobs k ON k.id = a.job_id WHERE a.ended IS NULL AND j.id IS NULL AND {them}",
        (now, value),
    ).fetchall()
    ended = [
        InterruptedAttempt(max(at, begun), LEASE_OVER, JobId(job), epoch) for at, job, epoch, begun in rows
    ]
    save_interrupted(connection, ended)
    # Recorded use has these attempts as open ones.
    usage.reset(connection)


def raise_epochs(connection: Connection, jobs: Sequence[int]) -> None:
    """Let the next attempt of these jobs have an epoch above that of all others."""
    them, value = in_list(connection, "id", jobs)
    highest = "(SELECT max(a.epoch) FROM attempts a WHERE a.job_id = jobs.id)"
    connection.execute(f"UPDATE jobs SET epoch = {highest} WHERE {them}", (value,))


def set_retry_times(connection: Connection, jobs: Sequence[int], now: float) -> None:
    """Let rescheduled jobs go back to their queues now, and no others."""
    them, value = in_list(connection, "id", jobs)
    time = "CASE WHEN state = 'Rescheduled' THEN CAST(? AS double precision) ELSE NULL END"
    connection.execute(f"UPDATE jobs SET not_before = {time} WHERE {them}", (now, value))


def set_owners(connection: Connection, jobs: Sequence[int]) -> None:
    """Give jobs the owner of their submission, and the final state of their state."""
    them, value = in_list(connection, "id", jobs)
    owner = "(SELECT s.owner FROM submissions s WHERE s.id = jobs.submission_id)"
    connection.execute(
        f"UPDATE jobs SET owner = {owner}, final_state = CASE WHEN state IN ({_FINAL}) THEN state ELSE '' END"
        f" WHERE {them}",
        (value,),
    )


def set_ends(connection: Connection, jobs: Sequence[int], now: float) -> None:
    """Give final jobs the time of their last event as end, and others none."""
    them, value = in_list(connection, "id", jobs)
    at = "coalesce((SELECT e.at FROM events e WHERE e.id = jobs.last_event), CAST(? AS double precision))"
    connection.execute(
        f"UPDATE jobs SET ended = CASE WHEN state IN ({_FINAL}) THEN {at} ELSE NULL END WHERE {them}",
        (now, value),
    )


# --- pilots


def set_ends_of_pilots(connection: Connection, pilots: Sequence[int], now: float) -> None:
    """Give pilots in a final state an end, and pilots with an end a final state."""
    them, value = in_list(connection, "id", pilots)
    final = f"state IN ({quoted(FINAL_OF_PILOTS)})"
    connection.execute(
        f"UPDATE pilots SET state = CASE WHEN {final} THEN state WHEN started IS NULL THEN 'Aborted' ELSE 'Failed' END,"
        f" ended = coalesce(ended, CAST(? AS double precision)), lease_until = NULL WHERE {them}",
        (now, value),
    )


def set_leases(connection: Connection, pilots: Sequence[int], until: float) -> None:
    them, value = in_list(connection, "id", pilots)
    connection.execute(f"UPDATE pilots SET lease_until = ? WHERE {them}", (until, value))


# --- submissions


def set_counts(connection: Connection, submissions: Sequence[int]) -> None:
    """Give submissions the number of jobs of their chunks."""
    them, value = in_list(connection, "id", submissions)
    number = (
        "coalesce((SELECT sum(c.count) FROM submission_chunks c WHERE c.submission_id = submissions.id), 0)"
    )
    connection.execute(f"UPDATE submissions SET count = {number} WHERE {them}", (value,))


def accept_staged(connection: Connection, submissions: Sequence[int]) -> None:
    them, value = in_list(connection, "id", submissions)
    connection.execute(f"UPDATE submissions SET state = 'closed' WHERE {them} AND state = 'staged'", (value,))


def delete_left_rows(connection: Connection, submissions: Sequence[int]) -> None:
    them, value = in_list(connection, "submission_id", submissions)
    for table in TABLES:
        connection.execute(f"DELETE FROM {table} WHERE {them}", (value,))


# --- parents


class Parents(NamedTuple):
    """The parents of the conditions of some submissions."""

    jobs: list[tuple[int, int, str]]
    """Id, submission and state of parent jobs that exist, archived ones too."""
    submissions: list[int]


def parents_of(connection: Connection, submissions: Sequence[int]) -> Parents:
    them, value = in_list(connection, "c.submission_id", submissions)
    jobs = connection.execute(
        "SELECT DISTINCT j.id, j.submission_id, j.state FROM conditions c JOIN (SELECT id, submission_id, state"
        " FROM jobs UNION ALL SELECT id, submission_id, state FROM history) AS j ON j.id = c.parent_job"
        f" WHERE {them} ORDER BY 1",
        (value,),
    ).fetchall()
    named = connection.execute(
        f"SELECT DISTINCT c.parent_submission FROM conditions c WHERE {them} AND c.parent_submission <> 0 ORDER BY 1",
        (value,),
    )
    return Parents([tuple(row) for row in jobs], [row[0] for row in named])


def gates_of(connection: Connection, submissions: Sequence[int]) -> list[tuple[SubmissionId, JobId]]:
    """The keys of the gates of some submissions."""
    them, value = in_list(connection, "submission_id", submissions)
    rows = connection.execute(f"SELECT submission_id, job_id FROM gates WHERE {them} ORDER BY 1, 2", (value,))
    return [(SubmissionId(row[0]), JobId(row[1])) for row in rows]


def conditions_on_gone(connection: Connection, submissions: Sequence[int]) -> list[ConditionRow]:
    """The open conditions of some submissions on parents that exist no more."""
    them, value = in_list(connection, "c.submission_id", submissions)
    columns = "c.submission_id, c.job_id, c.number, c.condition, c.parent_job, c.parent_submission, c.outlook, c.reason"
    rows = connection.execute(
        f"SELECT {columns} FROM conditions c WHERE {them} AND {gone(connection)}", (value,)
    )
    return [ConditionRow(*row) for row in rows]
