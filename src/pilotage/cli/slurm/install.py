"""`pilotage slurm-commands`: a folder for PATH with the commands of Slurm."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Annotated

from pilotage.cli.command_folder import write_commands
from pilotage.cli.parser import CommandArgument
from pilotage.cli.slurm.commands import SLURM_COMMANDS
from pilotage.core.plurals import plural


def slurm_commands(
    folder: Annotated[Path, CommandArgument("Folder for the commands", "DIR")],
) -> None:
    """Write the commands of Slurm for jobs into a folder; put it first in PATH.

    They take the same scripts and options as in Slurm, and act on jobs of Pilotage.
    """
    paths = write_commands(folder, "pilotage.main.slurm", SLURM_COMMANDS)
    print(f"{plural(len(paths), 'command')}: {', '.join(path.name for path in paths)}")
    print(f"Put them into use:  export PATH={shlex.quote(str(folder.resolve()))}:$PATH")
