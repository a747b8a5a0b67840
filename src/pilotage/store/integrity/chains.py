"""Checks of jobs that depend on others, and of limits on the jobs of a submission that run at once."""

from __future__ import annotations

from typing import Final

from pilotage.core.jobs.dependencies import Outlook, RunAfter, outlook_of_job
from pilotage.core.jobs.states import CONFIRMED, FINAL, JobState
from pilotage.store.engine.connection import Connection
from pilotage.store.integrity.check import Check, quoted
from pilotage.store.tables import partitions

_FINAL: Final = quoted(FINAL)
_WITH_PLACE: Final = quoted(CONFIRMED | {JobState.WAITING, JobState.MATCHED, JobState.RESCHEDULED})

_OF_JOB: Final = " ".join(
    f"WHEN c.condition = '{condition}' AND j.state IN"
    f" ({quoted(state for state in JobState if outlook_of_job(condition, state) is outlook)}) THEN '{outlook}'"
    for condition in RunAfter
    for outlook in Outlook
    if any(outlook_of_job(condition, state) is outlook for state in JobState)
)
"""The outlook of the condition `c` on the job `j`."""
_MAY_CHANGE: Final = (
    # As in `chains.of_parent`: a condition that was met stays met, unless an output is read again.
    "(c.outlook <> 'met' OR (EXISTS (SELECT 1 FROM handed_outputs h WHERE h.submission_id = c.submission_id"
    " AND h.job_id = c.parent_job) AND EXISTS (SELECT 1 FROM gates g WHERE g.submission_id = c.submission_id"
    " AND g.job_id = c.job_id AND g.outlook <> 'met')))"
)
_PENDING_JOB: Final = "SELECT 1 FROM parent_changes q WHERE q.job_id = c.parent_job"
_PENDING_SUBMISSION: Final = "SELECT 1 FROM parent_changes q WHERE q.submission_id = c.parent_submission"
_UNFINISHED_PARENT: Final = (
    "SELECT 1 FROM submission_chunks k JOIN jobs j ON j.id >= k.first_job AND j.id < k.first_job + k.made"
    f" AND j.submission_id = k.submission_id WHERE k.submission_id = c.parent_submission AND j.state NOT IN ({_FINAL})"
)
_NOT_DONE: Final = " OR ".join(
    f"EXISTS (SELECT 1 FROM {table} j WHERE j.submission_id = c.parent_submission"
    f" AND j.state IN ({quoted(FINAL - {JobState.DONE})}))"
    for table in ("jobs", "history")
)
_OF_SUBMISSION: Final = (
    f"CASE WHEN c.condition = 'after_ok' AND ({_NOT_DONE}) THEN 'never'"
    f" WHEN EXISTS ({_UNFINISHED_PARENT}) THEN 'open'"
    f" WHEN c.condition = 'after_fail' AND NOT ({_NOT_DONE}) THEN 'never' ELSE 'met' END"
)
_ALL: Final = (
    "CASE WHEN EXISTS (SELECT 1 FROM conditions c WHERE c.submission_id = g.submission_id AND c.job_id = g.job_id"
    " AND c.outlook = 'never') THEN 'never' WHEN EXISTS (SELECT 1 FROM conditions c"
    " WHERE c.submission_id = g.submission_id AND c.job_id = g.job_id AND c.outlook = 'open') THEN 'open'"
    " ELSE 'met' END"
)
"""The outlook of the gate `g`."""
_MOVING: Final = (
    "CASE g.outlook WHEN 'never' THEN j.state = 'Blocked' WHEN 'open' THEN j.state = 'Skipped'"
    " ELSE j.state IN ('Blocked', 'Skipped') END"
)
"""The job `j` has not followed the gate `g`: see `dependants._MOVING`."""


def gone(connection: Connection) -> str:
    """The condition `c` is open, and its parent exists no more and will not be made."""
    months = partitions.detached_months(connection, "history")
    archived = "".join(
        f" AND NOT EXISTS (SELECT 1 FROM {table} h WHERE h.id = c.parent_job)"
        for table in ("history", *(f"history_{month}" for month in months))
    )
    return (
        "c.outlook = 'open' AND (c.parent_job <> 0 AND NOT EXISTS (SELECT 1 FROM jobs j WHERE j.id = c.parent_job)"
        f"{archived} AND NOT EXISTS ({_PENDING_JOB}) AND NOT EXISTS (SELECT 1 FROM submission_chunks k"
        " WHERE c.parent_job >= k.first_job + k.made AND c.parent_job < k.first_job + k.count)"
        " OR c.parent_submission <> 0 AND NOT EXISTS (SELECT 1 FROM submissions s WHERE s.id = c.parent_submission))"
    )


CHECKS: Final = (
    Check(
        "parents-unmarked",
        "submissions with conditions on parents whose ends tell nobody",
        "The dependants stay Blocked when these parents end.",
        "SELECT c.submission_id FROM conditions c JOIN jobs j ON j.id = c.parent_job WHERE c.outlook = 'open'"
        f" AND j.has_dependants = 0 AND j.state NOT IN ({_FINAL}) UNION SELECT c.submission_id FROM conditions c"
        " JOIN submissions s ON s.id = c.parent_submission WHERE c.outlook = 'open' AND NOT EXISTS"
        " (SELECT 1 FROM parent_submissions p WHERE p.submission_id = c.parent_submission)",
    ),
    Check(
        "parents-marked-early",
        "parent submissions that were marked before all of their jobs were",
        "Jobs without the mark tell their dependants nothing when they end.",
        "SELECT p.submission_id FROM parent_submissions p WHERE p.marked = 1 AND (EXISTS (SELECT 1 FROM"
        " submission_chunks k WHERE k.submission_id = p.submission_id AND k.made < k.count) OR EXISTS (SELECT 1 FROM"
        " jobs j WHERE j.submission_id = p.submission_id AND j.has_dependants = 0"
        # Blocked jobs of a limit get the mark when they leave it.
        f" AND j.state NOT IN ({_FINAL}, 'Blocked')))",
    ),
    Check(
        "conditions-on-gone-parents",
        "submissions with conditions on parents that exist no more",
        "Nothing will ever decide about their dependants.",
        lambda connection: f"SELECT c.submission_id FROM conditions c WHERE {gone(connection)}",
    ),
    Check(
        "conditions-behind-jobs",
        "submissions with conditions that contradict the states of their parent jobs",
        "Dependants stay Blocked though their parents have ended, or Skipped though these wait again.",
        "SELECT c.submission_id FROM conditions c JOIN (SELECT id, state FROM jobs UNION ALL SELECT id, state"
        f" FROM history) AS j ON j.id = c.parent_job WHERE {_MAY_CHANGE} AND c.outlook <> CASE {_OF_JOB} END"
        f" AND NOT EXISTS ({_PENDING_JOB})",
    ),
    Check(
        "conditions-behind-submissions",
        "submissions with conditions that contradict the ends of their parent submissions",
        "Dependants stay Blocked though their parents have ended, or Skipped though these wait again.",
        "SELECT c.submission_id FROM conditions c JOIN submissions s ON s.id = c.parent_submission"
        # Deleted jobs of a parent may have decided.
        " JOIN parent_submissions p ON p.submission_id = s.id AND p.marked = 1 WHERE s.forgotten = 0"
        " AND c.outlook <> 'met' AND NOT EXISTS (SELECT 1 FROM submission_chunks k WHERE k.submission_id = s.id"
        f" AND k.made < k.count) AND NOT EXISTS ({_PENDING_SUBMISSION}) AND c.outlook <> {_OF_SUBMISSION}",
    ),
    Check(
        "gates-behind",
        "submissions with gates that contradict their conditions",
        "Their jobs stay Blocked or Skipped, whatever their parents do.",
        # The output that a job reads may be missing though its parent is Done.
        f"SELECT g.submission_id FROM gates g WHERE g.outlook <> 'met' AND g.outlook <> {_ALL} AND NOT"
        f" (g.outlook = 'never' AND {_ALL} = 'met' AND EXISTS (SELECT 1 FROM handed_outputs h"
        " WHERE h.submission_id = g.submission_id))",
    ),
    Check(
        "gates-unmoved",
        "submissions with jobs that have not followed their gates",
        "These jobs stay Blocked or Skipped though it is decided that they go on or end.",
        "SELECT g.submission_id FROM gates g JOIN jobs j ON j.id = g.job_id"
        f" WHERE g.settled = 1 AND g.job_id <> 0 AND {_MOVING}"
        " UNION SELECT g.submission_id FROM gates g JOIN jobs j ON j.submission_id = g.submission_id"
        f" WHERE g.settled = 1 AND g.job_id = 0 AND {_MOVING}",
    ),
    Check(
        "limits-unmoved",
        "submissions with a limit whose blocked jobs have free places",
        "These jobs stay Blocked though the limit lets them wait for a pilot.",
        # The end of a job of it that is not decided on unsettles the limit, and so do marks.
        "SELECT l.submission_id FROM parallel_limits l WHERE l.settled = 1 AND NOT EXISTS (SELECT 1 FROM"
        " parent_changes q WHERE q.submission_id = l.submission_id) AND NOT EXISTS (SELECT 1 FROM parent_submissions p"
        " WHERE p.submission_id = l.submission_id AND p.marked = 0) AND EXISTS (SELECT 1 FROM jobs j"
        " WHERE j.submission_id = l.submission_id AND j.state = 'Blocked') AND NOT EXISTS (SELECT 1 FROM gates g"
        " WHERE g.submission_id = l.submission_id) AND (l.running = 0 OR l.running > (SELECT count(*) FROM jobs j"
        f" WHERE j.submission_id = l.submission_id AND j.state IN ({_WITH_PLACE})))",
    ),
)
