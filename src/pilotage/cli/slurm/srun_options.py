"""The options of srun, with their meanings here."""

from __future__ import annotations

from typing import Final

from pilotage.cli.slurm.options import OptionTable, Takes, ignored, refused, understood
from pilotage.cli.slurm.sbatch_options import SBATCH_OPTIONS

_STEP: Final = "the job has one node, and the command runs on it"
_NOT_SRUN: Final = frozenset(
    {
        "array",
        "wrap",
        "parsable",
        "wait",
        "hold",
        "requeue",
        "no-requeue",
        "export-file",
        "get-user-env",
        "ignore-pbs",
    }
    | {"no-kill", "propagate", "spread-job", "wait-all-nodes", "output", "error", "input", "batch"}
)

SRUN_OPTIONS: Final = OptionTable(
    "srun",
    (
        [option._replace(variable="") for option in SBATCH_OPTIONS.options if option.name not in _NOT_SRUN],
        understood("error/e", "In a job: file for standard error, with `%j %J %A %a %t %N %x %u`"),
        understood("hold/H", "Outside of a job: it is held until it is released", Takes.NOTHING),
        understood("input/i", "In a job: file for standard input"),
        understood("label/l", "In a job: begin each line with the number of the task", Takes.NOTHING),
        understood("output/o", "In a job: file for standard output, as --error"),
        ignored("bcast compress no-kill/k propagate resv-ports send-libs", _STEP, Takes.OPTIONAL),
        ignored("cpu-bind jobid max-exit-timeout msg-timeout relative/r slurmd-debug threads/T", _STEP),
        ignored("disable-status/X exact overlap preserve-env/E quit-on-interrupt", _STEP, Takes.NOTHING),
        ignored("immediate/I", "a job waits until a pilot takes it", Takes.OPTIONAL),
        ignored(
            "kill-on-bad-exit/K", "the other tasks go on; the exit code is the highest one", Takes.OPTIONAL
        ),
        ignored("mpi", "tasks are started one by one, without MPI"),
        ignored("unbuffered/u", "output is never kept back", Takes.NOTHING),
        ignored("wait/W", "the other tasks go on"),
        refused("epilog prolog task-epilog task-prolog", "write it into the script"),
        refused("het-group", "jobs have one part"),
        refused("join", "a job runs one command on its node"),
        refused("multi-prog", "write it into the script", Takes.NOTHING),
        refused("pty", "a job has no terminal", Takes.NOTHING),
        refused("x11", "a job has no display", Takes.OPTIONAL),
    ),
    permutes=False,
)
