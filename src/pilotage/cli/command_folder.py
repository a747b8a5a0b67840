"""`pilotage slurm-commands` and `dirac-commands`: a folder for PATH with the commands of another system."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated

from pilotage.cli.dirac.commands import DIRAC_COMMANDS
from pilotage.cli.parser import CommandArgument
from pilotage.cli.slurm.commands import SLURM_COMMANDS
from pilotage.core.errors import Conflict, InvalidInput
from pilotage.core.plurals import plural

FolderArgument = Annotated[Path, CommandArgument("Folder for the commands", "DIR")]
MARK = "# A command of Pilotage."
_LONGEST = 255
"""Bytes of the first line of a script that Linux reads."""


def slurm_commands(folder: FolderArgument) -> None:
    """Write the commands of Slurm for jobs into a folder; put it first in PATH.

    They take the same scripts and options as in Slurm, and act on jobs of Pilotage.
    """
    _write_commands(folder, "pilotage.main.slurm", SLURM_COMMANDS)


def dirac_commands(folder: FolderArgument) -> None:
    """Write the commands of DIRAC for jobs into a folder; put it first in PATH.

    They take the same JDL and job ids as in DIRAC, and act on jobs of Pilotage.
    """
    _write_commands(folder, "pilotage.main.dirac", DIRAC_COMMANDS)


def _write_commands(folder: Path, module: str, names: Iterable[str]) -> None:
    """Write one script for each name; it runs `module` of this Python with the name and its arguments.

    Scripts of an earlier call are replaced. Raises Conflict for a file that is not one of them, before it writes any.
    """
    paths = [folder / name for name in names]
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for path in paths:
            if os.path.lexists(path) and not _is_ours(path):
                raise Conflict(f"{path} is a file of another program", hint="name an empty or a new folder")
        for path in paths:
            _write(path, module)
    except OSError as error:
        raise InvalidInput(f"the commands cannot be written to {folder}: {error.strerror}") from error
    print(f"{plural(len(paths), 'command')}: {', '.join(path.name for path in paths)}")
    print(f'Put them into use:  export PATH={shlex.quote(str(folder.resolve()))}:"$PATH"')


def _first_line() -> str:
    """The line that names this Python: a shell between would lose functions and variables. Raises InvalidInput."""
    python = sys.executable
    line = f'#!/usr/bin/env -S "{python}"' if any(letter.isspace() for letter in python) else f"#!{python}"
    if len(os.fsencode(line)) > _LONGEST:
        raise InvalidInput(
            f"the path of this Python is too long for a script: {python}", hint="make a link to it"
        )
    return line


def _is_ours(path: Path) -> bool:
    return path.is_file() and not path.is_symlink() and MARK.encode() in path.read_bytes()[:400]


def _write(path: Path, module: str) -> None:
    """Replace the whole file at once: another start of the command may read it."""
    new = path.with_name(f".{path.name}.new")
    new.write_text(
        f"{_first_line()}\n{MARK}\nimport sys\n\nfrom {module} import main\n\n"
        f"sys.argv.insert(1, {path.name!r})\nraise SystemExit(main())\n",
        encoding="utf-8",
    )
    new.chmod(0o755)
    new.replace(path)
