"""Checks of submissions: chunks, rows that are not jobs yet, and rows of deleted submissions."""

from __future__ import annotations

from typing import Final

from pilotage.store.engine.connection import Connection
from pilotage.store.integrity.check import Check
from pilotage.store.tables import history, partitions

TABLES: Final = (
    *("submission_chunks", "pending_rows", "chunk_files", "mails", "handed_outputs", "parallel_limits"),
    *("gates", "conditions", "parent_submissions"),
)
"""Tables with rows that are deleted with their submission."""


def _history(connection: Connection) -> str:
    """The archived jobs, as `h`. Jobs of detached months whose dependent rows are not deleted count."""
    left = [
        f" UNION ALL SELECT id FROM ({history.undeleted_jobs(month)}) AS left_{month}"
        for month in partitions.detached_months(connection, "history")
    ]
    return f"(SELECT id FROM history{''.join(left)}) AS h" if left else "history h"


def _missing_jobs(connection: Connection) -> str:
    return (
        "SELECT s.id FROM submissions s WHERE s.forgotten < coalesce((SELECT sum(c.made"
        " - (SELECT count(*) FROM jobs j WHERE j.id >= c.first_job AND j.id < c.first_job + c.made)"
        f" - (SELECT count(*) FROM {_history(connection)} WHERE h.id >= c.first_job AND h.id < c.first_job + c.made))"
        " FROM submission_chunks c WHERE c.submission_id = s.id), 0)"
    )


_SUM: Final = "coalesce((SELECT sum(c.count) FROM submission_chunks c WHERE c.submission_id = s.id), 0)"

CHECKS: Final = (
    Check(
        "jobs-missing",
        "submissions of which jobs are missing that have been made",
        "These jobs will never run and are in no list.",
        _missing_jobs,
        by_hand="Rows are lost: restore a backup, or submit these jobs again.",
    ),
    Check(
        "chunks-without-rows",
        "submissions with chunks whose rows are lost before all jobs were made",
        "Nobody knows the parameters of the jobs that are left.",
        "SELECT c.submission_id FROM submission_chunks c WHERE c.made < c.count AND NOT EXISTS"
        " (SELECT 1 FROM pending_rows p WHERE p.submission_id = c.submission_id AND p.number = c.number)",
        by_hand="Rows are lost: restore a backup, or submit these jobs again.",
    ),
    Check(
        "chunks-and-count",
        "submissions whose chunks do not make up their number of jobs",
        "`wait` and `list` tell a wrong number of jobs.",
        f"SELECT s.id FROM submissions s WHERE s.count <> {_SUM}",
    ),
    Check(
        "staged-with-jobs",
        "staged submissions that have jobs",
        "They were accepted, and the next server deletes them as not accepted.",
        "SELECT s.id FROM submissions s WHERE s.state = 'staged' AND EXISTS"
        " (SELECT 1 FROM submission_chunks c WHERE c.submission_id = s.id AND c.made > 0)",
    ),
    Check(
        "rows-of-deleted-submissions",
        "deleted submissions that have left rows",
        "Gates, limits and mails of these rows concern nobody.",
        " UNION ".join(
            f"SELECT t.submission_id FROM {table} t WHERE NOT EXISTS"
            " (SELECT 1 FROM submissions s WHERE s.id = t.submission_id)"
            for table in TABLES
        ),
    ),
)
