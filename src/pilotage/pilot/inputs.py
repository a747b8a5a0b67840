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

from .folders import stays_inside
from .launch import CannotRun
from .safe_open import NAME_ERRORS, make_folders, open_root, split
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

    def copy_to(self, connection: Connection, job: int, item: Input, path: str) -> None:
        """Put the file of that digest at `place`. Raises CannotRun or Away."""
        digest = item.source
        if len(digest) != 64 or not all(char in "0123456789abcdef" for char in digest):
            raise CannotRun(f"input {item.name}: {digest!r} is no digest", failure="input")
        with self._guard:
            lock = self._locks.setdefault(digest, threading.Lock())
        cached = os.path.join(self._folder, digest)
        with lock:
            if not os.path.exists(cached):
                os.makedirs(self._folder, mode=0o700, exist_ok=True)
                self._download(connection, f"/v1/pilot/jobs/{job}/inputs/{digest}", digest, cached)
        shutil.copyfile(cached, path)

    def _download(self, connection: Connection, path: str, digest: str, cached: str) -> None:
        actual = hashlib.sha256()
        number, part = tempfile.mkstemp(dir=self._folder)
        try:
            with os.fdopen(number, "wb") as file:
                for piece in connection.stream(path):
                    actual.update(piece)
                    file.write(piece)
            if actual.hexdigest() != digest:
                raise CannotRun(
                    f"input {digest}: what came has the digest {actual.hexdigest()}", failure="input"
                )
            os.rename(part, cached)
        except RequestRefused as error:
            raise CannotRun(f"input {digest}: {error}", failure="input") from None
        finally:
            if os.path.exists(part):
                os.unlink(part)


def has_remote_inputs(items: Iterable[Input]) -> bool:
    return any(item.mode != "shared" for item in items)


def place_inputs(
    connection: Connection, cache: InputCache, job: int, items: Iterable[Input], folder: str
) -> None:
    """Put all inputs into the folder. Raises CannotRun with class input or node, or Away."""
    for item in items:
        path = prepare_path(folder, item.name)
        if os.path.lexists(path) and not os.path.isdir(path):
            os.unlink(path)  # fetched once already, by a try that was cut short
        if item.mode == "shared":
            link_shared(item, path)
            continue
        if item.mode == "copy":
            cache.copy_to(connection, job, item, path)
        elif item.mode == "url":
            _fetch_url(item, path)
        else:
            raise CannotRun(f"input {item.name}: unknown mode {item.mode!r}", failure="input")
        if item.executable:
            os.chmod(path, os.stat(path).st_mode | stat.S_IXUSR)


def prepare_path(folder: str, name: str) -> str:
    """The path of an input; the folders above it are made, and none of them is a link. Raises CannotRun, OSError."""
    if not stays_inside(name):
        raise CannotRun(f"input {name!r}: its name leads out of the folder", failure="input")
    name = os.path.normpath(name)
    root = open_root(folder)
    try:
        # Below a shared input, which is a link, would be outside of the folder.
        os.close(make_folders(root, split(name)[0]))
    finally:
        os.close(root)
    return os.path.join(folder, name)


def placement_error(error: OSError) -> CannotRun:
    """Whose fault it is that an input could not be put into the folder."""
    return CannotRun(f"inputs: {error}", failure="input" if error.errno in NAME_ERRORS else "node")


def link_shared(item: Input, path: str) -> None:
    if not os.path.isabs(item.source) or not os.path.exists(item.source):
        raise CannotRun(f"input {item.name}: this node has no {item.source}", failure="node")
    os.symlink(item.source, path)


def _fetch_url(item: Input, path: str) -> None:
    if urllib.parse.urlsplit(item.source).scheme not in ("http", "https", "file"):
        raise CannotRun(
            f"input {item.name}: only http, https and file addresses are fetched", failure="input"
        )
    try:
        opened = urllib.request.urlopen(item.source, timeout=_URL_TIMEOUT)  # noqa: S310 (checked above)
        with opened as source, open(path, "wb") as file:
            shutil.copyfileobj(source, file, _CHUNK)
    except (OSError, ValueError) as error:
        raise CannotRun(f"input {item.name}: {error}", failure="input") from None
