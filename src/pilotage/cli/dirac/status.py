"""`dirac-wms-job-status`: the states of jobs, one line for each."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pilotage import wire
from pilotage.cli.dirac.jobs import (
    IdFile,
    JobGroup,
    JobIds,
    chosen_ids,
    require_jobs,
)
from pilotage.cli.session import session_of_environment
from pilotage.core.errors import InvalidInput
from pilotage.core.printable import printable

if TYPE_CHECKING:
    from pilotage.wire.jobs import JobSummary

MINOR = {
    "Blocked": "Waiting for other jobs",
    "Held": "Held by a person",
    "Waiting": "Pilot Agent Submission",
    "Matched": "Assigned",
    "Taken": "Assigned",
    "Running": "Application",
    "Rescheduled": "Job Rescheduled",
    "Done": "Execution Complete",
    "Killed": "Marked for termination",
}
"""DIRAC's minor status of a job whose state has no reason here."""


def status(jobs: JobIds = None, file: IdFile = None, group: JobGroup = None) -> None:
    """Print state, reason and site of each job."""
    with session_of_environment().client() as client:
        ids = chosen_ids(client, jobs, file, group)
        if not ids:
            raise InvalidInput("no job is named", hint="dirac-wms-job-status JobID...")
        for job in client.jobs(wire.jobs.Selection(ids=ids)):
            print(printable(_line(job)))
        require_jobs(client, ids)


def _line(job: JobSummary) -> str:
    minor = job.reason or MINOR.get(job.state, "")
    facts = {"Status": job.state, "MinorStatus": minor, "Site": job.site or "ANY"}
    return f"JobID={job.id} " + " ".join(f"{name}={_one_line(text)};" for name, text in facts.items())


def _one_line(text: str) -> str:
    """Without the characters that scripts split by."""
    return " ".join(text.replace(";", ",").split())
