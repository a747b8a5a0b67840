"""Find and upload what a payload leaves behind. Everything is looked for inside its folder only."""

from __future__ import annotations

import glob
import os
import stat
import urllib.parse
from typing import IO, Iterable, List, Set, Tuple

from .events import Key
from .folders import within
from .transport import Line


def find_outputs(folder: str, patterns: Iterable[str]) -> Tuple[List[str], List[str]]:
    """Names of the regular files that the patterns match, and the patterns that match none.

    Folders count with all that is below them. A link that leads out of the folder is not followed and counts as
    nothing: else a payload could have files of the pilot's user published.
    """
    found: Set[str] = set()
    missing = []
    real = os.path.realpath(folder)
    for pattern in patterns:
        names = set(_match(real, pattern)) if within(pattern) else set()
        if not names:
            missing.append(pattern)
        found |= names
    return sorted(found), missing


def _match(real: str, pattern: str) -> Iterable[str]:
    for hit in glob.glob(os.path.join(glob.escape(real), pattern), recursive=True):
        if os.path.isdir(hit) and not os.path.islink(hit) and _inside(real, hit):
            for parent, _, names in os.walk(hit):
                for name in names:
                    if _is_ours(real, os.path.join(parent, name)):
                        yield os.path.relpath(os.path.join(parent, name), real)
        elif _is_ours(real, hit):
            yield os.path.relpath(hit, real)


def _inside(real: str, place: str) -> bool:
    return os.path.realpath(place).startswith(real + os.sep)


def _is_ours(real: str, place: str) -> bool:
    return os.path.isfile(place) and _inside(real, place)


def open_output(folder: str, name: str) -> IO[bytes]:
    """Open one for reading, sure that it is a regular file inside the folder. Raises OSError."""
    real = os.path.realpath(folder)
    place = os.path.realpath(os.path.join(real, name))
    number = os.open(place, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    # Looked at after opening: nothing of the payload runs any more, yet this costs nothing.
    if not place.startswith(real + os.sep) or not stat.S_ISREG(os.fstat(number).st_mode):
        os.close(number)
        raise OSError(f"{name}: not a file of the payload's folder")
    return os.fdopen(number, "rb")


def upload(line: Line, key: Key, name: str, file: IO[bytes]) -> None:
    """Stream one open file up. Raises Away or Refused."""
    file.seek(0)
    size = os.fstat(file.fileno()).st_size
    place = f"/v1/pilot/jobs/{key[0]}/{key[1]}/outputs/{urllib.parse.quote(name)}"
    headers = {"Content-Type": "application/octet-stream", "Content-Length": str(size)}
    line.request("PUT", place, file, headers)
