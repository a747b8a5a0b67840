"""Checks of the file names for standard output and standard error."""

from __future__ import annotations

import posixpath
from collections.abc import Iterable, Iterator

from pilotage.core.errors import InvalidInput

STREAM_FIELDS = ("std_output", "std_error")


def stream_mistakes(
    std_output: str, std_error: str, executable: str, inputs: Iterable[tuple[str, bool]]
) -> Iterator[InvalidInput]:
    """An error for each name that the job could not write to, or that would overwrite one of its files.

    `inputs` are (name, whether the job gets its own copy under that name). Names outside of the job's folder are
    checked elsewhere.
    """
    streams = tuple(zip((std_output, std_error), STREAM_FIELDS, strict=True))
    inputs = list(inputs)
    for name, field in streams:
        if not name or name.endswith("/") or name.startswith(("/", "~")) or ".." in name.split("/"):
            continue  # reported by path_mistakes
        plain = posixpath.normpath(name)
        if plain == ".":
            yield InvalidInput(f"{field}: {name!r} is a directory, not a file", field=field)
        elif plain != name:
            yield InvalidInput(
                f"{field}: {name!r} is not a normalized path", hint=f"write {plain!r}", field=field
            )
        elif name == posixpath.normpath(executable or "."):
            yield InvalidInput(
                f"{field}: {name!r} is also the name of the executable",
                hint="choose another name",
                field=field,
            )
        else:
            yield from _clashes(name, field, inputs)
    for (name, field), (other, _) in (streams, streams[::-1]):
        if other.startswith(f"{name}/"):
            yield InvalidInput(f"{field}: {name!r} is also the directory of {other!r}", field=field)


def _clashes(name: str, field: str, inputs: Iterable[tuple[str, bool]]) -> Iterator[InvalidInput]:
    for input_, copied in inputs:
        given = posixpath.normpath(input_)
        if name == given:
            problem = f"{name!r} is also an input file, which would be overwritten"
        elif given.startswith(f"{name}/"):
            problem = f"{name!r} is also a directory of input files"
        elif name.startswith(f"{given}/") and not copied:
            problem = f"{name!r} is inside the shared input directory {given!r}"
        else:
            continue
        yield InvalidInput(f"{field}: {problem}", hint="choose another name", field=field)
