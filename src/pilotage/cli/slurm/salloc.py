"""`salloc`: refused with the commands that take its place."""

from __future__ import annotations

from pilotage.core.errors import InvalidInput


def salloc(words: list[str]) -> int:
    """Raises InvalidInput: pilots start jobs, and give no node to a shell."""
    raise InvalidInput(
        "a pool gives no node without a job",
        hint="srun COMMAND runs a command as a job and prints its output; sbatch --wrap COMMAND submits one",
    )
