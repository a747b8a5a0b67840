"""`scontrol`: show, hold, release, requeue and change jobs."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final

from pilotage.cli.session import session_of_environment
from pilotage.cli.slurm.amounts import parse_count
from pilotage.cli.slurm.host_lists import format_hosts, host_names
from pilotage.cli.slurm.job_view import SlurmJob, SlurmJobs
from pilotage.cli.slurm.query_options import SCONTROL_OPTIONS
from pilotage.cli.slurm.rows import make_rows
from pilotage.cli.slurm.scontrol_show import config_lines, job_text, node_text, partition_text
from pilotage.cli.slurm.selection import named_jobs
from pilotage.cli.slurm.start_script import packed_script
from pilotage.cli.slurm.states import PENDING
from pilotage.cli.slurm.usage import SPOKEN, note, show_usage
from pilotage.core.errors import InvalidInput, NotFound
from pilotage.core.jobs.states import JobState

if TYPE_CHECKING:
    from pilotage.wire.jobs import ActionResponse

SUBCOMMANDS: Final = {
    "show": "`job [NUMBER]`, `partition [NAME]`, `node [NAME]`, `config`, `hostnames LIST`, `hostlist LIST`",
    "write": "`batch_script NUMBER [FILE]`: the script of a job; `-` is standard output",
    "hold": "Hold jobs that have not started; `uhold` too",
    "release": "Let held jobs run",
    "requeue": "Run ended jobs again; a running one is refused",
    "update": "`JobId=N ArrayTaskThrottle=M`; other fields are refused",
    "ping": "Tell whether the server answers",
    "version": "Print the version",
}


_SHOWN: Final = ("jobs", "jobid", "partitions", "partitionname", "nodes", "nodename", "config")


def scontrol(words: list[str]) -> int:
    """Show, hold, release, requeue and change jobs."""
    read = SCONTROL_OPTIONS.read(words)
    if show_usage(SCONTROL_OPTIONS, read, "scontrol [OPTIONS] COMMAND [ARGUMENTS]"):
        return 0
    for text in SCONTROL_OPTIONS.ignored_notes(read):
        note("scontrol", text)
    name, rest = (read.rest[0].lower(), read.rest[1:]) if read.rest else ("", [])
    if name == "version":
        print(f"slurm {SPOKEN}")
        return 0
    if name == "show" and rest and (what := rest[0].lower()) in ("hostnames", "hostname", "hostlist"):
        hosts = host_names(",".join(rest[1:]) or os.environ.get("SLURM_JOB_NODELIST", ""))
        print(format_hosts(hosts) if what == "hostlist" else "\n".join(hosts))
        return 0
    with session_of_environment().client() as client:
        book = SlurmJobs(client)
        if name == "show":
            return _show(book, rest, read.values)
        if name in ("hold", "uhold"):
            return _act(book, client.hold, rest, done=lambda job: job.summary.state == JobState.HELD)
        if name == "release":
            return _act(book, client.release, rest, done=_waits)
        if name == "requeue":
            return _act(book, client.redo, rest)
        if name == "write":
            return _write_script(book, rest)
        if name == "update":
            return _update(book, rest)
        if name == "ping":
            client.whoami()
            print(f"Slurmctld(primary) at {client.url} is UP")
            return 0
    raise InvalidInput(f"{name or 'no command'} is not understood", hint=f"one of {', '.join(SUBCOMMANDS)}")


def _show(book: SlurmJobs, words: list[str], values: Mapping[str, str]) -> int:
    what = words[0].lower() if words else ""
    what, equals, value = what.partition("=")
    names = [value] if equals else words[1:]
    # As in Slurm, the first letters of a word are enough.
    what = next((word for word in _SHOWN if what and word.startswith(what)), what)
    if what in ("job", "jobs", "jobid"):
        texts = _shown_jobs(book, names)
    elif what in ("partition", "partitions", "partitionname"):
        texts = partition_text(book.client, names)
    elif what in ("node", "nodes", "nodename"):
        texts = node_text(book.client, names)
    elif what == "config":
        print("\n".join(config_lines(book.client)))
        return 0
    else:
        raise InvalidInput(f"show {what or '(nothing)'} is not understood", hint=SUBCOMMANDS["show"])
    one_line = "oneliner" in values
    print("\n".join(" ".join(text.split()) if one_line else text + "\n" for text in texts))
    return 0


def _shown_jobs(book: SlurmJobs, names: list[str]) -> list[str]:
    if names:
        jobs, missing = named_jobs(book, names)
        if missing and not jobs:
            raise NotFound(f"Invalid job id: there is no job {missing[0].number}")
    else:
        from pilotage.cli.slurm.selection import JobFilter, find_listed
        from pilotage.cli.slurm.squeue import MIN_JOB_AGE
        from pilotage.cli.slurm.states import ALL_STATES

        jobs = find_listed(book, JobFilter(), set(ALL_STATES), ended_since=time.time() - MIN_JOB_AGE)
    by_task = any("_" in name for name in names)
    return [job_text(row) for row in make_rows(jobs, time.time(), each_task=by_task)]


def _waits(job: SlurmJob) -> bool:
    return job.state is PENDING and job.summary.state != JobState.HELD


def _act(
    book: SlurmJobs,
    act: Callable[[list[int]], ActionResponse],
    words: list[str],
    done: Callable[[SlurmJob], bool] = lambda job: False,
) -> int:
    """Do something with the jobs that are named, except where it is `done`.

    The exit code is 1 if one of them was refused.
    """
    jobs, missing = named_jobs(book, [word.removeprefix("jobid=").removeprefix("JobId=") for word in words])
    for number in missing:
        note("scontrol", f"error: Invalid job id: there is no job {number.number}")
    if len(jobs) > 1:
        # Tasks that run already are not held, as in Slurm.
        jobs = [job for job in jobs if job.state is PENDING] if act.__name__ in ("hold", "release") else jobs
    jobs = [job for job in jobs if not done(job)]
    answer = act([job.summary.id for job in jobs]) if jobs else None
    for refusal in answer.refused if answer is not None else ():
        note("scontrol", f"error: job {refusal.job}: {refusal.message}")
    return int(bool(missing or (answer is not None and answer.refused)))


def _update(book: SlurmJobs, words: list[str]) -> int:
    fields = {name.lower(): value for name, _, value in (word.partition("=") for word in words)}
    number = fields.pop("jobid", fields.pop("job", ""))
    if not number:
        raise InvalidInput(
            "update: only jobs are changed", hint="scontrol update JobId=12 ArrayTaskThrottle=5"
        )
    unknown = [name for name in fields if name != "arraytaskthrottle"]
    if unknown or not fields:
        raise InvalidInput(
            f"update: {', '.join(unknown) or 'nothing'} cannot be changed", hint=SUBCOMMANDS["update"]
        )
    jobs, missing = named_jobs(book, [number])
    arrays: dict[int, SlurmJob] = {job.summary.submission: job for job in jobs if job.array is not None}
    if missing or not arrays:
        raise NotFound(f"Invalid job id: {number} is no array")
    for submission in arrays:
        book.client.limit_submission(
            submission, parse_count(fields["arraytaskthrottle"], "ArrayTaskThrottle", 0)
        )
    return 0


def _write_script(book: SlurmJobs, words: list[str]) -> int:
    if len(words) not in (2, 3) or words[0].lower() != "batch_script":
        raise InvalidInput("write is not understood", hint=SUBCOMMANDS["write"])
    jobs, _ = named_jobs(book, words[1:2])
    if not jobs:
        raise NotFound(f"Invalid job id: there is no job {words[1]}")
    described = jobs[0].description
    script = packed_script(described.get("executable", ""), described.get("arguments") or [])
    if script is None:
        raise NotFound(f"job {words[1]} was not submitted by sbatch, or is out of your sight")
    name = words[2] if len(words) > 2 else f"slurm-{jobs[0].array or jobs[0].summary.id}.sh"
    if name == "-":
        sys.stdout.buffer.write(script)
        return 0
    try:
        Path(name).write_bytes(script)
    except OSError as error:
        raise InvalidInput(f"{name} cannot be written: {error.strerror}") from error
    print(f"batch script for job {words[1]} written to {name}")
    return 0
