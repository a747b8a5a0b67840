"""Checks of rows that can be computed from others: counters of jobs, sequences of ids, and partitions."""

from __future__ import annotations

from typing import Final

from pilotage.store.engine.connection import Connection
from pilotage.store.integrity.check import Check
from pilotage.store.tables import job_counts, partitions

SEQUENCES: Final = (
    "queues",
    "outages",
    "queue_reasons",
    "removals",
    "changes",
    "count_changes",
    "parent_changes",
)
"""Tables whose ids a sequence of PostgreSQL gives."""


def rows_of_jobs(
    connection: Connection, columns: str = "submission_id, {month} AS month, state, count(*) AS jobs"
) -> str:
    """The numbers of jobs as their rows have them, with the columns of `submission_counts`."""
    hot = columns.format(month=job_counts.HOT)
    archived = columns.format(month=partitions.month_sql(connection, "ended"))
    return (
        f"SELECT {hot} FROM jobs GROUP BY 1, 2, 3 UNION ALL SELECT {archived} FROM history GROUP BY 1, 2, 3"
    )


def _of_submissions(connection: Connection) -> str:
    negative = "submission_id, {month} AS month, state, -count(*) AS jobs"
    return (
        "SELECT submission_id FROM (SELECT submission_id, month, state, jobs FROM submission_counts UNION ALL"
        f" SELECT submission_id, month, state, jobs FROM {job_counts.changes(connection)} AS c UNION ALL"
        f" {rows_of_jobs(connection, negative)}) AS compared"
        " GROUP BY submission_id, month, state HAVING sum(jobs) <> 0"
    )


def _sequences(connection: Connection) -> str:
    del connection
    return " UNION ALL ".join(
        f"SELECT '{table}' FROM (SELECT max(id) AS highest FROM {table}) AS t WHERE highest > coalesce((SELECT"
        " last_value FROM pg_sequences WHERE format('%I.%I', schemaname, sequencename)"
        f" = pg_get_serial_sequence('{table}', 'id')), 0)"
        for table in SEQUENCES
    )


CHECKS: Final = (
    *(
        # Where the key of a table has its instant in it, too (store/tables/partitions.py).
        Check(
            f"{table}-twice",
            f"{what} that are in {table} twice",
            "Lists show them twice, and nobody knows which row is right.",
            f"SELECT id FROM {table} GROUP BY id HAVING count(*) > 1",
            by_hand="Compare both rows, and delete the wrong one by SQL.",
            only="postgresql",
        )
        for table, what in (("history", "jobs"), ("events", "events"))
    ),
    Check(
        "submission-counters",
        "submissions whose counters are not the numbers of their jobs",
        "`wait` may not end, and lists tell wrong numbers.",
        _of_submissions,
    ),
    Check(
        "owner-counters",
        "owners whose counters are not the sums of their submissions",
        "Lists tell wrong numbers of jobs, and limits of owners count wrong.",
        "SELECT owner FROM (SELECT owner, grp, month, state, jobs FROM owner_counts UNION ALL"
        " SELECT s.owner, s.grp, c.month, c.state, -c.jobs FROM submission_counts c"
        " JOIN submissions s ON s.id = c.submission_id) AS compared"
        " GROUP BY owner, grp, month, state HAVING sum(jobs) <> 0",
    ),
    Check(
        "sequences",
        "tables whose next id was given before",
        "The next row of the table cannot be stored.",
        _sequences,
        only="postgresql",
    ),
)
