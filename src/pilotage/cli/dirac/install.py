"""`pilotage dirac-commands`: a folder for PATH with the commands of DIRAC."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Annotated

from pilotage.cli.command_folder import write_commands
from pilotage.cli.dirac.commands import DIRAC_COMMANDS
from pilotage.cli.parser import CommandArgument
from pilotage.core.plurals import plural


def dirac_commands(
    folder: Annotated[Path, CommandArgument("Folder for the commands", "DIR")],
) -> None:
    """Write the commands of DIRAC for jobs into a folder; put it first in PATH.

    They take the same JDL and job ids as in DIRAC, and act on jobs of Pilotage.
    """
    paths = write_commands(folder, "pilotage.main.dirac", DIRAC_COMMANDS)
    print(f"{plural(len(paths), 'command')}: {', '.join(path.name for path in paths)}")
    print(f"Put them into use:  export PATH={shlex.quote(str(folder.resolve()))}:$PATH")
