"""`dirac-wms-job-kill`, `-reschedule`, `-delete`: verbs on jobs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pilotage.cli.dirac.jobs import (
    FAILED,
    IdFile,
    JobGroup,
    JobIds,
    RequiredJobIds,
    chosen_ids,
    require_jobs,
)
from pilotage.cli.session import session_of_environment
from pilotage.client.selections import selection_of
from pilotage.core.errors import InvalidInput
from pilotage.core.printable import printable

if TYPE_CHECKING:
    from pilotage.client import Client

REFUSALS = 100
"""Jobs in one call: the server names no more refused ones in its answer."""


def kill(jobs: RequiredJobIds) -> int:
    """Kill jobs. The exit code is 2 if one of them could not be killed."""
    with session_of_environment().client() as client:
        return _act(client, "kill", "Killed jobs", chosen_ids(client, jobs, None, None))


def reschedule(jobs: RequiredJobIds) -> int:
    """Queue failed or killed jobs again. The exit code is 2 if one of them could not be queued."""
    with session_of_environment().client() as client:
        return _act(client, "reschedule", "Rescheduled job", chosen_ids(client, jobs, None, None))


def delete(jobs: JobIds = None, file: IdFile = None, group: JobGroup = None) -> int:
    """Delete jobs and their outputs. The exit code is 2 if one of them could not be deleted."""
    with session_of_environment().client() as client:
        ids = chosen_ids(client, jobs, file, group)
        if not ids:
            raise InvalidInput("no jobs selected", hint="dirac-wms-job-delete JobID...")
        return _act(client, "delete", "Deleted jobs", ids)


def _act(client: Client, verb: str, done: str, ids: list[int]) -> int:
    require_jobs(client, ids)
    changed: list[int] = []
    refused: dict[int, str] = {}
    for start in range(0, len(ids), REFUSALS):
        some = ids[start : start + REFUSALS]
        answer = getattr(client, verb)(selection_of(some))
        refused |= {refusal.job: refusal.message for refusal in answer.refused}
        changed += [job for job in some if job not in refused]
    if changed:
        print(f"{done} {','.join(map(str, changed))}")
    for job, message in refused.items():
        print(printable(f"ERROR {job}: {message}"))
    return FAILED if refused else 0
