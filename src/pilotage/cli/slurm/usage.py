"""Help, version and notes of Slurm's commands."""

from __future__ import annotations

import sys

from pilotage import __version__
from pilotage.cli.slurm.options import OptionTable, ReadOptions, Treatment
from pilotage.core.printable import printable

SPOKEN: str = "22.05.0"
"""The version of Slurm whose options and formats the commands have."""


def show_usage(table: OptionTable, read: ReadOptions, usage: str) -> bool:
    """Print help or version if they were asked for; False: neither was."""
    if "version" in read.values:
        print(f"slurm {SPOKEN} (as spoken by pilotage {__version__})")
        return True
    if not {"help", "usage"} & read.values.keys():
        return False
    print(f"Usage: {usage}\n\nOptions that are understood:")
    for option in table.options:
        if option.treatment is Treatment.UNDERSTOOD:
            names = f"-{option.short}, {option.shown}" if option.short else option.shown
            print(f"  {names:<26}{option.text}")
    return True


def note(command: str, text: str) -> None:
    print(printable(f"{command}: {text}"), file=sys.stderr)
