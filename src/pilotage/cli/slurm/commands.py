"""The table of Slurm's commands. Imports no command."""

from __future__ import annotations

from pilotage.cli.commands import LazyCommand

SLURM_COMMANDS = {
    name: LazyCommand(f"pilotage.cli.slurm.{name}", name, text)
    for name, text in (
        ("sbatch", "Submit a batch script"),
        ("salloc", "Refused: a pool gives no node without a job"),
        ("squeue", "List jobs that have not ended"),
        ("sacct", "List jobs, also ended ones, with their use of resources"),
        ("scancel", "Cancel jobs, or signal them"),
        ("scontrol", "Show, hold, release, requeue and change jobs"),
        ("sinfo", "List partitions and nodes"),
        ("srun", "Run a command in a job, or as a job of its own"),
    )
}
"""Functions that take the words of a command line and return an exit code."""
