"""Names of files for output: the patterns of Slurm become patterns of a job in place."""

from __future__ import annotations

import re
from typing import Final

from pilotage.core.errors import InvalidInput

_PATTERN: Final = re.compile(r"%(\d*)([A-Za-z%])")
_KEPT: Final = frozenset("jAaxuN%")
_FIXED: Final = {"J": "%{}j", "t": "0", "n": "0", "s": "batch"}
"""A job has one node and one task that writes to the file, and the step of a batch script is `batch`."""
DEFAULT_NAME: Final = "slurm-%j.out"
DEFAULT_ARRAY_NAME: Final = "slurm-%A_%a.out"


def output_name(text: str, option: str) -> str:
    r"""The name for `stdout_file` or `stderr_file`.

    A backslash keeps all patterns as they are, and `none` is no file.

    >>> [output_name(text, "--output") for text in ("log-%J_%t.txt", "log-\\%j.txt", "none")]
    ['log-%j_0.txt', 'log-%%j.txt', '/dev/null']
    """

    def place(match: re.Match[str]) -> str:
        letter = match[2]
        if letter in _KEPT:
            return match[0]
        if letter not in _FIXED:
            raise InvalidInput(
                f"{option} {text}: %{letter} is not understood", hint="%j %J %A %a %x %u %N %n %t %s"
            )
        return _FIXED[letter].format(match[1])

    if not text.strip():
        raise InvalidInput(f"{option}: the name of the file is empty")
    if text == "none":
        return "/dev/null"
    if "\\" in text:
        return text.replace("\\", "").replace("%", "%%")
    return _PATTERN.sub(place, text)
