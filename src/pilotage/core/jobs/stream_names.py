"""The names of the files of standard output and error: what they must not be, beside leading out of the folder."""

from __future__ import annotations

import posixpath
from collections.abc import Iterable, Iterator

from pilotage.core.errors import InvalidInput

STREAM_FIELDS = ("std_output", "std_error")


def stream_mistakes(
    std_output: str, std_error: str, executable: str, inputs: Iterable[tuple[str, bool]]
) -> Iterator[InvalidInput]:
    """One for each name that a running job could not write to, or by which it would lose a file of its own.

    `inputs` are names, and whether the job gets a copy of its own under that name.
    """
    streams = tuple(zip((std_output, std_error), STREAM_FIELDS, strict=True))
    inputs = list(inputs)
    for name, field in streams:
        if not name or name.endswith("/") or name.startswith(("/", "~")) or ".." in name.split("/"):
            continue  # told by the check of all names
        plain = posixpath.normpath(name)
        if plain == ".":
            yield InvalidInput(f"{field}: {name!r} is a folder, not a file", field=field)
        elif plain != name:
            yield InvalidInput(
                f"{field}: {name!r} is not in its plain form", hint=f"write {plain!r}", field=field
            )
        elif name == posixpath.normpath(executable or "."):
            yield InvalidInput(
                f"{field}: {name!r} is the program itself", hint="choose another name", field=field
            )
        else:
            yield from _clashes(name, field, inputs)
    for (name, field), (other, _) in (streams, streams[::-1]):
        if other.startswith(f"{name}/"):
            yield InvalidInput(f"{field}: {name!r} is the folder of {other!r}", field=field)


def _clashes(name: str, field: str, inputs: Iterable[tuple[str, bool]]) -> Iterator[InvalidInput]:
    for input_, copied in inputs:
        given = posixpath.normpath(input_)
        if name == given:
            told = f"{name!r} is an input: it would be lost"
        elif given.startswith(f"{name}/"):
            told = f"{name!r} is a folder of inputs"
        elif name.startswith(f"{given}/") and not copied:
            told = f"{name!r} lies below the input {given!r}, which is not the job's own"
        else:
            continue
        yield InvalidInput(f"{field}: {told}", hint="choose another name", field=field)
