"""Writes a folder for PATH with the commands of another system, which call this program."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Iterable
from pathlib import Path

from pilotage.core.errors import Conflict, InvalidInput

MARK = "# A command of Pilotage."


def write_commands(folder: Path, module: str, names: Iterable[str]) -> list[Path]:
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
    return paths


def _is_ours(path: Path) -> bool:
    return path.is_file() and not path.is_symlink() and MARK.encode() in path.read_bytes()[:200]


def _write(path: Path, module: str) -> None:
    """Replace the whole file at once: a running shell script is read piece by piece."""
    call = shlex.join([sys.executable, "-m", module, path.name])
    new = path.with_name(f".{path.name}.new")
    new.write_text(f'#!/bin/sh\n{MARK}\nexec {call} "$@"\n', encoding="utf-8")
    new.chmod(0o755)
    new.replace(path)
