"""Jobs in place: they run in a folder that submitting machine and nodes share, and write where the user said.

File names have the patterns of Slurm. The host is known on the node only, so `%N` and `%%` are replaced there.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from pilotage.core.errors import InvalidInput
from pilotage.core.folders import folder_mistake, shows

FILE_FIELDS: Final = ("stdout_file", "stderr_file")
NO_ARRAY: Final = 2**32 - 2
"""The array number of a job that is in no array, as in Slurm."""
MARK_FIELDS: Final = ("folder_mark", "umask")
MARK: Final = re.compile(r"ino:\d{1,20}(?:/\d{1,20})?", re.ASCII)
"""Inode numbers of a folder and of the folder above it, if that is on the same file system."""
UMASK: Final = re.compile(r"[0-7]{3,4}", re.ASCII)

_PATTERN: Final = re.compile(r"%(\d{0,2})(.?)", re.ASCII | re.DOTALL)
_KNOWN: Final = frozenset("jAaxuN%")
_HINT: Final = "the patterns are %j, %A, %a, %x, %u, %N and %%; %4j has at least 4 digits"


def in_place_mistakes(
    folder: str, files: Sequence[str], marks: Sequence[str], *, has_inputs: bool
) -> Iterator[InvalidInput]:
    """An error for each field of a job in place that it cannot have.

    `files` and `marks` are the values of `FILE_FIELDS` and of `MARK_FIELDS`.
    """
    if not folder:
        for value, field in zip((*files, *marks), (*FILE_FIELDS, *MARK_FIELDS), strict=True):
            if value:
                hint = "set folder, or submit with --here; other jobs have std_output and std_error"
                yield InvalidInput(f"{field} needs a folder", hint=hint, field=field)
        return
    if reason := folder_mistake(folder):
        yield InvalidInput(f"folder: {folder!r} {reason}", field="folder")
    if has_inputs:
        yield InvalidInput(
            "input_sandbox: a job in place gets no input files, since it finds them in its folder",
            hint="remove input_sandbox, or folder",
            field="input_sandbox",
        )
    for value, field, form in zip(marks, MARK_FIELDS, (MARK, UMASK), strict=True):
        if value and not form.fullmatch(value):
            yield InvalidInput(f"{field}: {value[:80]!r} has not the form that --here writes", field=field)
    for name, field in zip(files, FILE_FIELDS, strict=True):
        if name and (reason := _file_mistake(name)):
            yield InvalidInput(f"{field}: {name!r} {reason}", hint=_HINT, field=field)


def _file_mistake(name: str) -> str:
    if name.endswith("/") or posixpath.basename(name) in (".", ".."):
        return "is a folder, not a file"
    if name.startswith("~"):
        return "begins with ~: write the absolute path"
    if not name.isprintable():
        return "contains characters that cannot be printed"
    unknown = next((m[0] for m in _PATTERN.finditer(name) if not m[2] or m[2] not in _KNOWN), "")
    return f"has the unknown pattern {unknown}" if unknown else ""


def folders_of(folder: str, files: Sequence[str]) -> frozenset[str]:
    """The folders that a node must share for such a job; none for a job that is not in place."""
    if not folder:
        return frozenset()
    named = {_fixed_folder(posixpath.normpath(posixpath.join(folder, name))) for name in files if name}
    return frozenset({folder, *(path for path in named if not shows((folder, "/dev"), path))})


def _fixed_folder(path: str) -> str:
    """The folder of a file, without the parts of its path that differ from job to job."""
    parent = posixpath.dirname(path.partition("%")[0])
    return parent.replace("//", "/")


def filled_name(name: str, values: Mapping[str, str | int]) -> str:
    """The file name of one job. `values` by the letter of the pattern; a pattern without a value stays.

    >>> filled_name("%x-%4j_%a.%N.%%", {"x": "100%", "j": 12, "a": 3})
    '100%%-0012_3.%N.%%'
    """

    def fill(found: re.Match[str]) -> str:
        width, letter = found.groups()
        value = values.get(letter)
        if isinstance(value, int):
            return str(value).zfill(int(width or 0))
        # The node replaces the other patterns.
        return found[0] if value is None else value.replace("%", "%%")

    return _PATTERN.sub(fill, name)
