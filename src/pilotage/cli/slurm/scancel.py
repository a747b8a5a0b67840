"""`scancel`: cancel jobs."""

from __future__ import annotations

import sys
from typing import Final

from pilotage.cli.session import session_of_environment
from pilotage.cli.slurm.job_view import SlurmJob, SlurmJobs
from pilotage.cli.slurm.options import ReadOptions
from pilotage.cli.slurm.query_options import SCANCEL_OPTIONS
from pilotage.cli.slurm.resources import parse_signal
from pilotage.cli.slurm.selection import JobFilter, filter_of, find_listed, named_jobs
from pilotage.cli.slurm.states import COMPLETING, PENDING, RUNNING, parse_states
from pilotage.cli.slurm.usage import note, show_usage
from pilotage.core.errors import InvalidInput
from pilotage.core.printable import printable

_ACTIVE: Final = frozenset({PENDING, RUNNING, COMPLETING})
_CONDITIONS: Final = ("account", "jobname", "me", "name", "nodelist", "partition", "state", "user")


def scancel(words: list[str]) -> int:
    """Cancel jobs. The exit code is 1 if a number names no job."""
    read = SCANCEL_OPTIONS.read(words)
    values = read.values
    if show_usage(SCANCEL_OPTIONS, read, "scancel [OPTIONS] [NUMBER...]"):
        return 0
    if "signal" in values and parse_signal(values["signal"])[0] not in ("KILL", "TERM"):
        raise InvalidInput(
            f"--signal {values['signal']}: a running job cannot be signalled",
            hint="--signal of sbatch sends one before the end; KILL and TERM cancel the job",
        )
    if not read.rest and not any(name in values for name in _CONDITIONS):
        raise InvalidInput("no job is named", hint="scancel 12, scancel 12_3 or scancel --me")
    for text in SCANCEL_OPTIONS.ignored_notes(read):
        note("scancel", text)
    with session_of_environment().client() as client:
        return _cancel(SlurmJobs(client), read)


def _cancel(book: SlurmJobs, read: ReadOptions) -> int:
    values, failed = read.values, 0
    own = book.client.whoami().user
    states = parse_states(values["state"]) if "state" in values else set()
    conditions = filter_of(values, own, states)
    if read.rest:
        jobs, missing = named_jobs(book, read.rest)
        for number in missing:
            note("scancel", f"error: Invalid job id: there is no job {number.number}")
            failed = 1
        jobs = [job for job in jobs if conditions.takes(job)]
    else:
        conditions.owners = conditions.owners or [own]
        jobs = _listed(book, conditions)
    # Ended jobs are no error, as in Slurm.
    chosen = [job for job in jobs if not job.state.ended and ("interactive" not in values or _agreed(job))]
    if not chosen:
        return failed
    for job in chosen if "verbose" in values else ():
        note("scancel", f"Terminating job {job.number}")
    answer = book.client.kill([job.summary.id for job in chosen], reason="scancel")
    for refusal in answer.refused:
        note("scancel", f"error: job {refusal.job}: {refusal.message}")
    return 1 if answer.refused else failed


def _listed(book: SlurmJobs, conditions: JobFilter) -> list[SlurmJob]:
    return find_listed(book, conditions, set(conditions.states or _ACTIVE) & _ACTIVE, ended_since=None)


def _agreed(job: SlurmJob) -> bool:
    print(printable(f"Cancel job {job.number} {job.summary.name}? [y/n] "), end="", flush=True)
    return sys.stdin.readline().strip().lower() in ("y", "yes")
