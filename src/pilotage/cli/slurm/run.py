"""Runs one of Slurm's commands: its errors are lines on standard error, and its exit code is then 1."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Sequence

from pilotage.cli.root import Failure, run_reported
from pilotage.cli.slurm.commands import SLURM_COMMANDS
from pilotage.core.printable import printable_lines

FAILED = 1
"""The exit code of Slurm's commands after an error."""


def run(name: str, words: Sequence[str]) -> int:
    """The exit code of one command line; nothing is raised."""
    failures: list[Failure] = []

    def report(failure: Failure) -> None:
        failures.append(failure)
        text = f"{name}: error: {failure.message}" + (f"\n  hint: {failure.hint}" if failure.hint else "")
        print(printable_lines(text), file=sys.stderr)

    def call() -> int:
        command = SLURM_COMMANDS[name]
        code: int = getattr(importlib.import_module(command.module), command.attribute)(list(words))
        return code

    code = run_reported(call, report)
    return FAILED if failures and code != INTERRUPTED else code


INTERRUPTED = 130
