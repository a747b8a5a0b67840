"""The batch script: where it comes from, and its `#SBATCH` lines."""

from __future__ import annotations

import shlex
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from pilotage.core.errors import InvalidInput

MAX_SCRIPT: Final = 4 * 1024 * 1024
_MARK: Final = "#SBATCH"


@dataclass(frozen=True)
class BatchScript:
    text: bytes
    name: str
    """The default of --job-name."""
    path: str
    """Where it was, for people; "" for standard input and --wrap."""

    def directives(self) -> list[tuple[int, list[str]]]:
        """(number of the line, its words) of each `#SBATCH` line before the first command."""
        listed: list[tuple[int, list[str]]] = []
        for number, line in enumerate(self.text.decode("utf-8", "replace").split("\n"), 1):
            stripped = line.strip()
            if stripped and not stripped.startswith("#"):
                break
            if line.startswith(_MARK) and (len(line) == len(_MARK) or line[len(_MARK)].isspace()):
                listed.append((number, _words(line[len(_MARK) :], number)))
        return listed


def read_script(words: list[str], wrap: str | None) -> BatchScript:
    """The script of `--wrap`, of the file that the first word names, or of standard input. Raises InvalidInput."""
    if wrap is not None:
        if words:
            raise InvalidInput("a script and --wrap cannot be combined", hint=f"leave {words[0]} out")
        return BatchScript(f"#!/bin/sh\n# made by sbatch --wrap\n\n{wrap}\n".encode(), "wrap", "")
    if not words:
        script = BatchScript(sys.stdin.buffer.read(MAX_SCRIPT + 1), "sbatch", "")
    else:
        script = _read_file(_found(words[0]))
    _check(script)
    return script


def _found(word: str) -> Path:
    """The file of this name here; if there is none, the program of this name in PATH, as in Slurm."""
    path = Path(word)
    if "/" not in word and not path.exists():
        return Path(shutil.which(word) or word)
    return path


def _read_file(path: Path) -> BatchScript:
    try:
        with path.open("rb") as file:
            return BatchScript(file.read(MAX_SCRIPT + 1), path.name, str(path.absolute()))
    except OSError as error:
        raise InvalidInput(f"the batch script {path} cannot be read: {error.strerror}") from error


def _check(script: BatchScript) -> None:
    place = script.path or "standard input"
    if not script.text.strip():
        raise InvalidInput(f"the batch script {place} is empty")
    if len(script.text) > MAX_SCRIPT:
        raise InvalidInput(f"the batch script {place} is larger than {MAX_SCRIPT:,} bytes")
    if b"\0" in script.text:
        raise InvalidInput(f"the batch script {place} has null bytes, so it is no script")
    if not script.text.startswith(b"#!"):
        raise InvalidInput(
            f"the batch script {place} does not begin with #! and the path of an interpreter",
            hint="such as #!/bin/sh",
        )
    if b"\r\n" in script.text:
        raise InvalidInput(
            f"the batch script {place} has DOS line ends (\\r\\n)",
            hint="dos2unix, or sed -i 's/\\r$//', mends it",
        )


def _words(text: str, number: int) -> list[str]:
    """The words of a directive; a # begins a comment."""
    try:
        return shlex.split(text, comments=True)
    except ValueError as error:
        raise InvalidInput(f"line {number}: a quote is not closed") from error
