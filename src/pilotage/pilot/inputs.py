"""Fetches the input files of a payload. Runs in background threads, each with its own connection."""

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
from pilotage.wire.pilot_calls import READ_INPUT

from .folders import stays_inside
from .launch import CannotRun
from .safe_open import NAME_ERRORS, make_folders, open_root, split
from .transport import RequestRefused, ServerConnection

_CHUNK = 1 << 16
_URL_TIMEOUT = 60.0


class InputCache:
    """Input files by digest, downloaded once for all jobs of this pilot.

    Every job gets its own copy: a payload that changes its input must not change the input of the next job.
    """

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._locks: Dict[str, threading.Lock] = {}
        self._guard = threading.Lock()

    def copy_to(self, connection: ServerConnection, job: int, item: Input, path: str) -> None:
        """Copy the input to `path`, downloading it first if necessary. Raises CannotRun or ServerUnavailable."""
        digest = item.source
        if len(digest) != 64 or not all(char in "0123456789abcdef" for char in digest):
            raise CannotRun(f"input {item.name}: {digest!r} is not a SHA-256 digest", failure="input")
        with self._guard:
            lock = self._locks.setdefault(digest, threading.Lock())
        cached = os.path.join(self._folder, digest)
        with lock:
            if not os.path.exists(cached):
                os.makedirs(self._folder, mode=0o700, exist_ok=True)
                self._download(connection, READ_INPUT.address(job=job, digest=digest), digest, cached)
        shutil.copyfile(cached, path)

    def _download(self, connection: ServerConnection, path: str, digest: str, cached: str) -> None:
        actual = hashlib.sha256()
        number, part = tempfile.mkstemp(dir=self._folder)
        try:
            with os.fdopen(number, "wb") as file:
                for piece in connection.stream(path):
                    actual.update(piece)
                    file.write(piece)
            if actual.hexdigest() != digest:
                raise CannotRun(
                    f"input {digest}: the downloaded file has the digest {actual.hexdigest()}",
                    failure="input",
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
    connection: ServerConnection, cache: InputCache, job: int, items: Iterable[Input], folder: str
) -> None:
    """Put all inputs into the folder. Raises CannotRun with failure class input or node, or ServerUnavailable."""
    for item in items:
        path = prepare_path(folder, item.name)
        if os.path.lexists(path) and not os.path.isdir(path):
            os.unlink(path)  # left by an earlier attempt to fetch that was interrupted
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
    """Create the folders of an input and return its path; no folder is a link. Raises CannotRun, OSError."""
    if not stays_inside(name):
        raise CannotRun(f"input {name!r}: its name leads out of the folder", failure="input")
    name = os.path.normpath(name)
    root = open_root(folder)
    try:
        # A shared input is a link: a path below it would lead out of the folder.
        os.close(make_folders(root, split(name)[0]))
    finally:
        os.close(root)
    return os.path.join(folder, name)


def placement_error(error: OSError) -> CannotRun:
    """The error to report: the input is to blame if its name is impossible, otherwise the node."""
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
