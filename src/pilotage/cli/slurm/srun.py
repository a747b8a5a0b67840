"""`srun`: run a command in a job of ours; outside of one, submit it as a job, wait, and print its output."""

from __future__ import annotations

import os
import shlex
import sys
from typing import TYPE_CHECKING, Final

from pilotage import wire
from pilotage.cli.session import LONG_PATIENCE, session_of_environment
from pilotage.cli.slurm.batch_job import make_batch_job
from pilotage.cli.slurm.job_numbers import parse_number
from pilotage.cli.slurm.job_view import SlurmJobs
from pilotage.cli.slurm.options import ReadOptions
from pilotage.cli.slurm.resources import task_count
from pilotage.cli.slurm.sbatch import exit_status, prepared_job
from pilotage.cli.slurm.script import BatchScript
from pilotage.cli.slurm.srun_options import SRUN_OPTIONS
from pilotage.cli.slurm.tasks import NOT_FOUND, report_ends, run_tasks
from pilotage.cli.slurm.usage import note, show_usage
from pilotage.core.errors import InvalidInput

if TYPE_CHECKING:
    from pilotage.client import Client

_TASKS: Final = """\
#!/bin/sh
if ! command -v {name} > /dev/null; then
  echo "srun: error: execve(): "{name}": No such file or directory" >&2
  exit {code}
fi
export SLURM_STEP_ID=0 SLURM_STEP_NUM_TASKS={count} SLURM_PROCID SLURM_LOCALID
SLURM_PROCID=0
started=
while [ $SLURM_PROCID -lt {count} ]; do
  SLURM_LOCALID=$SLURM_PROCID
  {command} &
  started="$started $!"
  SLURM_PROCID=$((SLURM_PROCID + 1))
done
task=0
highest=0
for process in $started; do
  wait $process
  code=$?
  if [ $code -ne 0 ]; then
    echo "srun: error: $SLURMD_NODENAME: task $task: Exited with exit code $code" >&2
  fi
  [ $code -le $highest ] || highest=$code
  task=$((task + 1))
done
exit $highest
"""
"""The script of several tasks. It needs no srun on the node, and tells the failure of each task itself."""


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
    script, arguments = _script(read.rest, tasks)
    with session_of_environment().client(patience=LONG_PATIENCE) as client:
        book = SlurmJobs(client)
        job = make_batch_job(
            values,
            script,
            arguments,
            parent=lambda number: book.parent(parse_number(number)),
            namesakes=book.namesakes,
            partitions=book.partitions,
        )
        # Its output comes through the server, to this terminal.
        for name in ("stdout_file", "stderr_file", "open_mode"):
            job.description.pop(name, None)
        number = client.send(prepared_job(job)).first
        _await_end(client, number)
        [listed] = book.jobs(wire.jobs.Selection(ids=[number]))
        code, signal = listed.exit_code
        if listed.state.name != "COMPLETED" and not code and not signal:
            note("srun", f"error: job {number}: {listed.state.name}: {listed.summary.reason}")
            return 1
        if "quiet" not in values and tasks == 1:
            report_ends([(code, signal)], listed.summary.hostname.partition(".")[0])
        return exit_status(code, signal)


def _await_end(client: Client, number: int) -> None:
    """Wait for the end of the job, which the end of the caller is too. Print its output."""
    try:
        client.wait(number)
    except KeyboardInterrupt:
        client.kill(number, reason="srun was interrupted")
        raise
    for stream, target in (("stdout", sys.stdout), ("stderr", sys.stderr)):
        for piece in client.logs(number, stream=stream):
            target.buffer.write(piece.data)
        target.flush()


def _script(command: list[str], tasks: int) -> tuple[BatchScript, list[str]]:
    """The script and its arguments; one task needs no script."""
    name = os.path.basename(command[0])
    if tasks == 1:
        return BatchScript(b"", name, ""), command
    text = _TASKS.format(
        name=shlex.quote(command[0]), command=shlex.join(command), code=NOT_FOUND, count=tasks
    )
    return BatchScript(os.fsencode(text), name, ""), []
