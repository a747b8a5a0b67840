"""`srun`: run a command in a job of ours; outside of one, submit it as a job, wait, and print its output."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

from pilotage import wire
from pilotage.cli.session import LONG_PATIENCE, session_of_environment
from pilotage.cli.slurm.batch_job import make_batch_job
from pilotage.cli.slurm.callers_job import ends_with_caller
from pilotage.cli.slurm.job_numbers import parse_number
from pilotage.cli.slurm.job_view import SlurmJobs
from pilotage.cli.slurm.options import ReadOptions
from pilotage.cli.slurm.resources import task_count
from pilotage.cli.slurm.sbatch import exit_status, prepared_job
from pilotage.cli.slurm.script import BatchScript
from pilotage.cli.slurm.srun_options import SRUN_OPTIONS
from pilotage.cli.slurm.tasks import report_ends, run_tasks
from pilotage.cli.slurm.usage import note, show_usage
from pilotage.core.errors import InvalidInput

if TYPE_CHECKING:
    from pilotage.client import Client


def srun(words: list[str]) -> int:
    """Run a command; the exit code is that of the command."""
    read = SRUN_OPTIONS.read(words)
    if show_usage(SRUN_OPTIONS, read, "srun [OPTIONS] COMMAND [ARGUMENTS]"):
        return 0
    if read.values.get("mpi") == "list":
        print("MPI plugin types are...\n\tnone")
        return 0
    if not read.rest:
        raise InvalidInput("no command is given", hint="srun hostname")
    if os.environ.get("PILOTAGE_JOB") and os.environ.get("SLURM_JOB_ID"):
        return run_tasks(read.values, read.rest)
    return _as_job(read)


def _as_job(read: ReadOptions) -> int:
    values = read.values
    for name in ("output", "error", "input", "label"):
        if name in values:
            raise InvalidInput(f"--{name} works in a job only", hint="redirect srun itself, or use sbatch")
    if "quiet" not in values:
        for text in SRUN_OPTIONS.ignored_notes(read):
            note("srun", text)
    tasks = task_count(values)
    script = BatchScript(b"", os.path.basename(read.rest[0]), "")
    with session_of_environment().client(patience=LONG_PATIENCE) as client:
        book = SlurmJobs(client)
        job = make_batch_job(
            values,
            script,
            read.rest,
            tasks=tasks,
            parent=lambda number: book.parent(parse_number(number)),
            namesakes=book.namesakes,
            partitions=book.partitions,
        )
        # Its output comes through the server, to this terminal.
        for name in ("stdout_file", "stderr_file", "open_mode"):
            job.description.pop(name, None)
        prepared = prepared_job(job)
        with ends_with_caller(
            lambda: client.send(prepared).first, lambda number: client.kill(number, reason="srun has ended")
        ) as number:
            client.wait(number)
            _print_output(client, number)
        [listed] = book.jobs(wire.jobs.Selection(ids=[number]))
        code, signal = listed.exit_code
        if listed.state.name != "COMPLETED" and not code and not signal:
            note("srun", f"error: job {number}: {listed.state.name}: {listed.summary.reason}")
            return 1
        if "quiet" not in values and tasks == 1:
            report_ends([(code, signal)], listed.summary.hostname.partition(".")[0])
        return exit_status(code, signal)


def _print_output(client: Client, number: int) -> None:
    for stream, target in (("stdout", sys.stdout), ("stderr", sys.stderr)):
        for piece in client.logs(number, stream=stream):
            target.buffer.write(piece.data)
        target.flush()
