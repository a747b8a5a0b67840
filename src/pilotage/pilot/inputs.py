"""Fetch the input sandbox of a payload. Runs on an errand's thread; each piece of work has its own connection."""

from __future__ import annotations

import hashlib
import os
import shutil
import stat
import tempfile
import threading
import urllib.error
import urllib.parse
import urllib.request
from typing import Dict, Iterable

from pilotage.wire.pilot import Input

from .beneath import OF_THE_NAME, make_folders, open_root, split
from .folders import within
from .launch import CannotRun
from .transport import Connection, RequestRefused

_CHUNK = 1 << 16
_URL_TIMEOUT = 60.0


class InputCache:
    """Inputs by digest, downloaded once for all jobs of this pilot that need them.

    Every job gets a copy of its own: a payload that changes its input must not change that of the next job.
    """

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._locks: Dict[str, threading.Lock] = {}
        self._guard = threading.Lock()

    def provide(self, line: Connection, job: int, item: Input, place: str) -> None:
        """Put the file of that digest at `place`. Raises CannotRun or Away."""
        digest = item.source
        if len(digest) != 64 or not all(char in "0123456789abcdef" for char in digest):
            raise CannotRun(f"input {item.name}: {digest!r} is no digest", failure="input")
        with self._guard:
            lock = self._locks.setdefault(digest, threading.Lock())
        kept = os.path.join(self._folder, digest)
        with lock:
            if not os.path.exists(kept):
                os.makedirs(self._folder, mode=0o700, exist_ok=True)
                self._download(line, f"/v1/pilot/jobs/{job}/inputs/{digest}", digest, kept)
        shutil.copyfile(kept, place)

    def _download(self, line: Connection, path: str, digest: str, kept: str) -> None:
        seen = hashlib.sha256()
        number, part = tempfile.mkstemp(dir=self._folder)
        try:
            with os.fdopen(number, "wb") as file:
                for piece in line.stream(path):
                    seen.update(piece)
                    file.write(piece)
            if seen.hexdigest() != digest:
                raise CannotRun(
                    f"input {digest}: what came has the digest {seen.hexdigest()}", failure="input"
                )
            os.rename(part, kept)
        except RequestRefused as error:
            raise CannotRun(f"input {digest}: {error}", failure="input") from None
        finally:
            if os.path.exists(part):
                os.unlink(part)


def needs_fetching(items: Iterable[Input]) -> bool:
    return any(item.mode != "shared" for item in items)


def place_inputs(line: Connection, cache: InputCache, job: int, items: Iterable[Input], folder: str) -> None:
    """Put all inputs into the folder. Raises CannotRun with class input or node, or Away."""
    for item in items:
        place = place_for(folder, item.name)
        if os.path.lexists(place) and not os.path.isdir(place):
            os.unlink(place)  # fetched once already, by a try that was cut short
        if item.mode == "shared":
            link_shared(item, place)
            continue
        if item.mode == "copy":
            cache.provide(line, job, item, place)
        elif item.mode == "url":
            _fetch(item, place)
        else:
            raise CannotRun(f"input {item.name}: unknown mode {item.mode!r}", failure="input")
        if item.executable:
            os.chmod(place, os.stat(place).st_mode | stat.S_IXUSR)


def place_for(folder: str, name: str) -> str:
    """The path of an input; the folders above it are made, and none of them is a link. Raises CannotRun, OSError."""
    if not within(name):
        raise CannotRun(f"input {name!r}: its name leads out of the folder", failure="input")
    name = os.path.normpath(name)
    root = open_root(folder)
    try:
        # Below a shared input, which is a link, would be outside of the folder.
        os.close(make_folders(root, split(name)[0]))
    finally:
        os.close(root)
    return os.path.join(folder, name)


def not_placed(error: OSError) -> CannotRun:
    """Whose fault it is that an input could not be put into the folder."""
    return CannotRun(f"inputs: {error}", failure="input" if error.errno in OF_THE_NAME else "node")


def link_shared(item: Input, place: str) -> None:
    if not os.path.isabs(item.source) or not os.path.exists(item.source):
        raise CannotRun(f"input {item.name}: this node has no {item.source}", failure="node")
    os.symlink(item.source, place)


def _fetch(item: Input, place: str) -> None:
    if urllib.parse.urlsplit(item.source).scheme not in ("http", "https", "file"):
        raise CannotRun(
            f"input {item.name}: only http, https and file addresses are fetched", failure="input"
        )
    try:
        opened = urllib.request.urlopen(item.source, timeout=_URL_TIMEOUT)  # noqa: S310 (checked above)
        with opened as source, open(place, "wb") as file:
            shutil.copyfileobj(source, file, _CHUNK)
    except (OSError, ValueError) as error:
        raise CannotRun(f"input {item.name}: {error}", failure="input") from None
