"""Rules that every database meets after every commit. `pilotage db check` reports violations."""

from __future__ import annotations

from pilotage.core.errors import Conflict
from pilotage.core.jobs.states import CONFIRMED, FINAL, JobState
from pilotage.store.admin.revisions import head_revision, refuse_unknown
from pilotage.store.engine.connection import Connection
from pilotage.store.tables import history, job_counts, partitions

EXAMPLES = 5
"""Examples named for each kind of damage."""


def _quote_states(states: frozenset[JobState]) -> str:
    return ", ".join(f"'{state}'" for state in sorted(states))


_WITH_PILOT = CONFIRMED | {JobState.MATCHED}
_UNFINISHED = f"state NOT IN ({_quote_states(FINAL)})"
_HISTORY = "history h"
"""Stands for archived jobs in a rule; jobs of detached months are added."""
_RULES: tuple[tuple[str, str], ...] = (
    (
        "jobs without a submission that promises their id",
        "SELECT j.id FROM jobs j LEFT JOIN submissions s ON s.id = j.submission_id"
        # Chunks accepted by several servers may have ids below the ids of the first chunk.
        " AND ((j.id >= s.first_job AND j.id < s.first_job + coalesce(s.expected, s.count))"
        " OR EXISTS (SELECT 1 FROM submission_chunks c WHERE c.submission_id = s.id"
        " AND c.first_job <= j.id AND j.id < c.first_job + c.count)) WHERE s.id IS NULL",
    ),
    (
        "jobs that are in the history and not",
        "SELECT j.id FROM jobs j JOIN history h ON h.id = j.id",
    ),
    (
        "submissions of which jobs are missing that have been made",
        "SELECT s.id FROM submissions s WHERE s.forgotten < coalesce((SELECT sum(c.made"
        " - (SELECT count(*) FROM jobs j WHERE j.id >= c.first_job AND j.id < c.first_job + c.made)"
        f" - (SELECT count(*) FROM {_HISTORY} WHERE h.id >= c.first_job AND h.id < c.first_job + c.made))"
        " FROM submission_chunks c WHERE c.submission_id = s.id), 0)",
    ),
    (
        "submissions whose chunks do not make up their number of jobs",
        "SELECT s.id FROM submissions s WHERE s.count <>"
        " coalesce((SELECT sum(c.count) FROM submission_chunks c WHERE c.submission_id = s.id), 0)",
    ),
    (
        "chunks of which rows are lost before all jobs were made (submissions)",
        "SELECT c.submission_id FROM submission_chunks c WHERE c.made < c.count AND NOT EXISTS"
        " (SELECT 1 FROM pending_rows p WHERE p.submission_id = c.submission_id AND p.number = c.number)",
    ),
    (
        "unfinished jobs whose task queue is gone",
        f"SELECT id FROM jobs WHERE {_UNFINISHED} AND queue_id NOT IN (SELECT id FROM queues)",
    ),
    (
        "unfinished jobs whose last event is gone",
        # Retention has deleted the events before the first existing one.
        f"SELECT id FROM jobs WHERE {_UNFINISHED} AND last_event NOT IN (SELECT id FROM events)"
        " AND (last_event = 0 OR last_event > (SELECT coalesce(min(id), 0) FROM events))",
    ),
    (
        "jobs that are offered or held, but by no pilot",
        f"SELECT id FROM jobs WHERE state IN ({_quote_states(_WITH_PILOT)}) AND pilot_id IS NULL",
    ),
    (
        "jobs that have a pilot in a state without one",
        f"SELECT id FROM jobs WHERE state NOT IN ({_quote_states(_WITH_PILOT)}) AND pilot_id IS NOT NULL",
    ),
    (
        "jobs held by pilots that have ended or are not known",
        "SELECT j.id FROM jobs j LEFT JOIN pilots p ON p.id = j.pilot_id"
        " WHERE j.pilot_id IS NOT NULL AND (p.id IS NULL OR p.ended IS NOT NULL)",
    ),
    (
        "held jobs without an open attempt of this epoch",
        f"SELECT id FROM jobs WHERE state IN ({_quote_states(CONFIRMED)}) AND NOT EXISTS (SELECT 1 FROM attempts a"
        " WHERE a.job_id = jobs.id AND a.epoch = jobs.epoch AND a.ended IS NULL)",
    ),
    (
        "jobs with an attempt that is open, though nobody holds them in its epoch",
        "SELECT a.job_id FROM attempts a LEFT JOIN jobs j ON j.id = a.job_id AND j.epoch = a.epoch"
        f" AND j.state IN ({_quote_states(CONFIRMED)}) WHERE a.ended IS NULL AND j.id IS NULL",
    ),
    (
        "jobs of which two results were applied",
        # After one that failed, a person may have the job begin again.
        "SELECT a.job_id FROM attempts a JOIN attempts b ON b.job_id = a.job_id AND b.epoch > a.epoch"
        " AND b.outcome = 'applied' WHERE a.outcome = 'applied' AND coalesce(a.failure, '') = ''",
    ),
    (
        "rescheduled jobs that never go back to their queue, or others that would",
        "SELECT id FROM jobs WHERE (state = 'Rescheduled') <> (not_before IS NOT NULL)",
    ),
    (
        "jobs whose owner or final state is not that of their submission or state",
        "SELECT j.id FROM jobs j JOIN submissions s ON s.id = j.submission_id WHERE j.owner <> s.owner"
        f" OR j.final_state <> CASE WHEN j.{_UNFINISHED} THEN '' ELSE j.state END",
    ),
    ("attempts of an epoch that their job has not reached (jobs)", "SELECT a.job_id FROM attempts a"
     " JOIN jobs j ON j.id = a.job_id WHERE a.epoch > j.epoch"),
)  # fmt: skip

# Where the key of a table has its instant in it, too (store/tables/partitions.py).
_RULES_OF_MONTHS = tuple(
    (f"{what} that are in {table} twice", f"SELECT id FROM {table} GROUP BY id HAVING count(*) > 1")
    for table, what in (("history", "jobs"), ("events", "events"))
)


def find_damage(connection: Connection, revision: str | None) -> list[str]:
    """One line for each broken rule, with count and examples; empty: no damage. For a reader's connection.

    Raises Conflict if the schema is of another version, whose rules are not known here.
    """
    refuse_unknown(revision)
    head = head_revision()
    if revision != head:
        raise Conflict(
            f"the schema of the database is {revision or 'none'}, and this version's is {head}",
            hint="`pilotage db upgrade` changes it after a backup; then check again",
        )
    connection.begin()
    try:
        damage = _check_instance(connection)
        of_months = _RULES_OF_MONTHS if connection.dialect == "postgresql" else ()
        for what, rule in (*_RULES, *of_months, *_rules_of_counters(connection)):
            sql = rule.replace(f"FROM {_HISTORY} ", f"FROM {_history_with_detached(connection)} ")
            [count] = connection.execute(f"SELECT count(*) FROM ({sql}) AS broken").fetchone()
            if count:
                rows = connection.execute(
                    f"SELECT * FROM ({sql}) AS broken ORDER BY 1 LIMIT {EXAMPLES}"
                ).fetchall()
                more = " ..." if count > EXAMPLES else ""
                damage.append(f"{count:,} {what}: {', '.join(str(row[0]) for row in rows)}{more}")
        if connection.dialect == "postgresql":
            damage += _check_sequences(connection)
    finally:
        connection.rollback()
    return damage


def _history_with_detached(connection: Connection) -> str:
    months = partitions.detached_months(connection, "history")
    left = [
        f" UNION ALL SELECT id FROM ({history.undeleted_jobs(month)}) AS left_{month}" for month in months
    ]
    return f"(SELECT id FROM history{''.join(left)}) AS h" if left else _HISTORY


def _rules_of_counters(connection: Connection) -> tuple[tuple[str, str], ...]:
    counted = (
        "(SELECT submission_id, month, state, jobs FROM submission_counts"
        f" UNION ALL SELECT submission_id, month, state, jobs FROM {job_counts.changes(connection)} AS c)"
    )
    rows = (
        f"SELECT submission_id, {job_counts.HOT} AS month, state, -count(*) FROM jobs GROUP BY 1, 2, 3 UNION ALL"
        f" SELECT submission_id, {partitions.month_sql(connection, 'ended')}, state, -count(*) FROM history"
        " GROUP BY 1, 2, 3"
    )
    of_submissions = (
        f"SELECT DISTINCT submission_id FROM (SELECT * FROM {counted} AS counted UNION ALL {rows}) AS compared"
        " GROUP BY submission_id, month, state HAVING sum(jobs) <> 0"
    )
    of_owners = (
        "SELECT DISTINCT owner FROM (SELECT owner, grp, month, state, jobs FROM owner_counts UNION ALL"
        " SELECT s.owner, s.grp, c.month, c.state, -c.jobs FROM submission_counts c"
        " JOIN submissions s ON s.id = c.submission_id) AS compared"
        " GROUP BY owner, grp, month, state HAVING sum(jobs) <> 0"
    )
    return (
        ("submissions whose counters are not the numbers of their jobs", of_submissions),
        ("owners whose counters are not the sums of their submissions", of_owners),
    )


def _check_instance(connection: Connection) -> list[str]:
    [instances] = connection.execute("SELECT count(*) FROM instance").fetchone()
    [policies] = connection.execute("SELECT count(*) FROM policies").fetchone()
    [jobs] = connection.execute("SELECT count(*) FROM submissions").fetchone()
    if instances and policies:
        return []
    if not instances and not jobs:
        return []
    return ["the row of the instance or its policy is missing: a part of the database is lost"]


def _check_sequences(connection: Connection) -> list[str]:
    """Find sequences that would give a used id again, for example after a table was filled by hand."""
    damage: list[str] = []
    for table, column in (
        ("queues", "id"),
        ("outages", "id"),
        ("queue_reasons", "id"),
        ("removals", "id"),
        ("changes", "id"),
        ("count_changes", "id"),
        ("parent_changes", "id"),
    ):
        sequence = f"pg_get_serial_sequence('{table}', '{column}')"
        sql = (
            f"SELECT (SELECT max({column}) FROM {table}),"
            f" (SELECT last_value FROM pg_sequences WHERE format('%I.%I', schemaname, sequencename) = {sequence})"
        )
        highest, last = connection.execute(sql).fetchone()
        if highest is not None and (last is None or last < highest):
            damage.append(f"the next {column} of {table} was given before ({last or 0} < {highest})")
    return damage
