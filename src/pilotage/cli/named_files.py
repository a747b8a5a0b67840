"""Files of the working folder that a command names: they are sent along, as its user expects."""

from __future__ import annotations

import difflib
import os
import re
import shutil
from collections.abc import Iterator, Sequence, Set
from dataclasses import dataclass, field
from fnmatch import fnmatch
from itertools import islice
from pathlib import Path

from pilotage.cli.time_format import format_size
from pilotage.core.errors import InvalidInput, TooLarge

MAX_FILES = 1000
MAX_BYTES = 100_000_000
"""More is not sent unless `--input` names it."""


MOST_COMPARED = 10_000
"""Files of a folder that a missing name is compared with."""

_INTERPRETER = re.compile(r"(python|pypy|perl|ruby|node|Rscript|julia|lua|php|bash|zsh|ksh|dash|sh)[\d.]*\Z")
_FILE_NAME = re.compile(r"(?!-)[\w./+-]*\w\.[A-Za-z]\w{0,7}\Z")
_DIGITS = re.compile(r"\d+")


@dataclass(slots=True)
class NamedFiles:
    """The files that a command names. `files` are sent under these names, `notes` report files left out."""

    executable: str
    files: dict[str, Path] = field(default_factory=dict)
    programs: set[str] = field(default_factory=set)
    """Names of the files that are sent as executable."""
    notes: list[str] = field(default_factory=list)
    size: int = 0

    def send(self, name: str, path: Path) -> None:
        if name in self.files:
            return
        self.files[name] = path
        self.size += path.stat().st_size
        if len(self.files) > MAX_FILES or self.size > MAX_BYTES:
            much = f"{MAX_FILES:,} files" if len(self.files) > MAX_FILES else format_size(MAX_BYTES)
            raise TooLarge(
                f"the command names files of this folder, up to {path}, that are more than {much} together",
                hint=f"send them with --input {name} (or a folder), name their place on the nodes with shared:PATH,"
                " or send none of them with --no-inputs",
            )


def find_named_files(command: Sequence[str], inputs: Set[str], outputs: Sequence[str] = ()) -> NamedFiles:
    """The files that `command` names, except `inputs` (names in the job's folder), which are sent already.

    A file that is not here and looks misspelt is a note, unless a pattern of `outputs` has its name.
    """
    program = _resolve_program(command[0], inputs)
    for word in command[1:]:
        _add_argument(word, inputs, program)
    for word in _missing_files(command, inputs):
        if not any(fnmatch(word, pattern) for pattern in outputs):
            alike = _existing_file_like(word)
            hint = f"; did you mean {alike}?" if alike else ""
            program.notes.append(f"warning: there is no file {word} here{hint}")
    return program


def _missing_files(command: Sequence[str], inputs: Set[str]) -> Iterator[str]:
    """Words that name no file here: the script of an interpreter, or a name like that of a file here."""
    script = _script_of(command)
    for place, word in enumerate(command[1:], 1):
        path = Path(word)
        if (
            not _FILE_NAME.match(word)
            or path.is_absolute()
            or _is_sent(path, inputs)
            or os.path.lexists(word)
        ):
            continue
        if place == script or _existing_file_like(word):
            yield word


def _script_of(command: Sequence[str]) -> int | None:
    """The place of the script that an interpreter runs. An option before it may have taken its place."""
    if not _INTERPRETER.match(Path(command[0]).name):
        return None
    return 1 if len(command) > 1 and not command[1].startswith("-") else None


def _existing_file_like(word: str) -> str:
    """A file here whose name differs by a slip; names that differ in digits only are a series. "": there is none."""
    path = Path(word)
    try:
        names = [entry.name for entry in islice(os.scandir(path.parent), MOST_COMPARED) if entry.is_file()]
    except OSError:
        return ""
    alike = difflib.get_close_matches(path.name, names, n=1, cutoff=0.85)
    if not alike or _DIGITS.sub("", alike[0]) == _DIGITS.sub("", path.name):
        return ""
    return str(path.with_name(alike[0]))


def _is_sent(path: Path, inputs: Set[str]) -> bool:
    return str(path) in inputs or any(part in inputs for part in path.parts[:1])


def _resolve_program(word: str, inputs: Set[str]) -> NamedFiles:
    """A program that is a file here is sent and started from the job's folder.

    A bare name is looked for in PATH first, as in a shell.
    """
    path = Path(word)
    if not word or path.is_absolute():
        notes = [f"warning: {word} is a folder here, and no program"] if path.is_dir() else []
        return NamedFiles(word, notes=notes)
    if _is_sent(path, inputs):
        return NamedFiles(word if word.startswith("./") else f"./{word}")
    if "/" not in word and word not in (".", ".."):
        return _resolve_bare_name(word, path)
    if path.is_dir():
        raise InvalidInput(f"{word} is a folder", hint="give a job file, or a command: -- COMMAND ...")
    if not path.is_file():
        raise InvalidInput(
            f"there is no file {word} here", hint="name a program of the nodes by its name or absolute path"
        )
    program = NamedFiles(f"./{path.name}")
    if path.name not in inputs:
        program.send(path.name, path)
        program.programs.add(path.name)
    return program


def _resolve_bare_name(word: str, path: Path) -> NamedFiles:
    if path.is_file() and shutil.which(word) is None:
        program = NamedFiles(f"./{word}")
        program.send(word, path)
        program.programs.add(word)
        return program
    program = NamedFiles(word)
    if path.is_file():
        program.notes.append(f"{word} is the program of that name on the nodes; ./{word} sends the file here")
    elif path.is_dir():
        program.notes.append(f"{word} is run as a program of the nodes; the folder {word} here is not sent")
    elif shutil.which(word) is None:
        program.notes.append(f"warning: there is no program {word} here; the job looks for it on its node")
    return program


def _add_argument(word: str, inputs: Set[str], found: NamedFiles) -> None:
    path = Path(word)
    try:
        if not word or word in (".", ".."):
            return
        if word.startswith("-"):
            _note_option(word, inputs, found)
        elif path.is_absolute():
            if path.is_file() and path.is_relative_to(Path.cwd()):
                here = path.relative_to(Path.cwd())
                found.notes.append(
                    f"{word} is not sent: the job looks for it there on its node; {here} sends it"
                )
        elif _is_sent(path, inputs):
            return
        elif path.is_dir():
            found.notes.append(f"the folder {word} is not sent: -i {word} sends it")
        elif not path.is_file():
            return
        elif ".." in path.parts:
            found.notes.append(f"{word} is not sent, since it is not below this folder: -i {word} sends it")
        else:
            found.send(str(path), path)
    except (OSError, ValueError):
        return  # a word that can't be a path: too long, or with a NUL


def _note_option(word: str, inputs: Set[str], found: NamedFiles) -> None:
    """`--config=FILE`: such a file is told, since only the program knows whether it reads or writes it."""
    _, equals, value = word.partition("=")
    path = Path(value)
    if equals and value and not path.is_absolute() and path.is_file() and not _is_sent(path, inputs):
        found.notes.append(f"{value} in {word} is not sent: -i {value} sends it")
