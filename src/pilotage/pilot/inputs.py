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
from typing import IO, Dict, Iterable, Optional

from pilotage.wire.data import S3, StoragePlace
from pilotage.wire.pilot import Input
from pilotage.wire.pilot_calls import READ_INPUT, READ_JOB_OUTPUT
from pilotage.wire.storage import FIND_INPUT, InputAddress
from pilotage.wire.uploads import SMALL_FILE

from .cannot_run import CannotRun
from .codec import decode
from .data_in import check_end
from .folders import stays_inside
from .log import log
from .place import DataAttempt, PlaceFailed
from .s3_place import S3PilotPlace
from .safe_open import NAME_ERRORS, make_folders, open_root, split
from .transport import RequestRefused

_CHUNK = 1 << 16
_URL_TIMEOUT = 60.0
_LOCK_TIMEOUT = 0.5
"""Seconds after which a wait for another download looks whether the job was killed."""


class InputCache:
    """Input files by digest, downloaded once for all jobs of this pilot.

    Every job gets its own copy: a payload that changes its input must not change the input of the next job.
    """

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._locks: Dict[str, threading.Lock] = {}
        self._guard = threading.Lock()

    def copy_to(self, attempt: DataAttempt, item: Input, path: str) -> None:
        """Copy the input to `path`, downloading it first if necessary.

        Raises CannotRun, ServerUnavailable and DataCancelled.
        """
        digest = item.source
        if len(digest) != 64 or not all(char in "0123456789abcdef" for char in digest):
            raise CannotRun(f"input {item.name}: {digest!r} is not a SHA-256 digest", failure="input")
        with self._guard:
            lock = self._locks.setdefault(digest, threading.Lock())
        cached = os.path.join(self._folder, digest)
        # Another job may wait long for a service that is away.
        while not lock.acquire(timeout=_LOCK_TIMEOUT):
            attempt.check()
        try:
            if not os.path.exists(cached):
                os.makedirs(self._folder, mode=0o700, exist_ok=True)
                self._download(attempt, item, cached)
        finally:
            lock.release()
        shutil.copyfile(cached, path)

    def _download(self, attempt: DataAttempt, item: Input, cached: str) -> None:
        digest = item.source
        number, part = tempfile.mkstemp(dir=self._folder)
        try:
            with os.fdopen(number, "wb") as file:
                actual = _read_from_storage(attempt, item, file)
                if actual is None:
                    path = READ_INPUT.address(job=attempt.key[0], digest=digest)
                    actual = _write(file, attempt.connection.stream(path))
            if actual != digest:
                raise CannotRun(
                    f"input {digest}: the downloaded file has the digest {actual}",
                    failure="input",
                )
            os.rename(part, cached)
        except RequestRefused as error:
            raise CannotRun(f"input {digest}: {error}", failure="input") from None
        finally:
            if os.path.exists(part):
                os.unlink(part)


def _read_from_storage(attempt: DataAttempt, item: Input, file: IO[bytes]) -> Optional[str]:
    """Read a large input from the S3 service that has it. Returns its digest; None: the server is to send the file.

    The server passes on a file that the service does not give, so nodes without a way to the service work.
    """
    if item.size <= SMALL_FILE:
        return None
    path = FIND_INPUT.address(job=attempt.key[0], digest=item.source)
    there = decode(InputAddress, attempt.connection.request("GET", path, None, {}))
    if not there.url:
        return None
    place = StoragePlace("", there.url, S3, there.patience)
    try:
        return _write(file, S3PilotPlace(place, attempt).read(there.url))
    except PlaceFailed as error:
        log("storage gives no input, so the server is asked", job=attempt.key[0], reason=str(error))
        return None


def _write(file: IO[bytes], pieces: Iterable[bytes]) -> str:
    """Let a file have these bytes only; returns their digest."""
    file.seek(0)
    file.truncate()
    digest = hashlib.sha256()
    for piece in pieces:
        digest.update(piece)
        file.write(piece)
    return digest.hexdigest()


def has_remote_inputs(items: Iterable[Input]) -> bool:
    return any(item.mode != "shared" for item in items)


def place_inputs(attempt: DataAttempt, cache: InputCache, items: Iterable[Input], folder: str) -> None:
    """Put all inputs into the folder.

    Raises CannotRun with failure class input or node, ServerUnavailable and DataCancelled.
    """
    for item in items:
        path = prepare_path(folder, item.name)
        if os.path.lexists(path) and not os.path.isdir(path):
            os.unlink(path)  # left by an earlier attempt to fetch that was interrupted
        if item.mode == "shared":
            link_shared(item, path)
            continue
        if item.mode == "copy":
            cache.copy_to(attempt, item, path)
        elif item.mode == "job":
            _fetch_output(attempt, item, path)
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


def _fetch_output(attempt: DataAttempt, item: Input, path: str) -> None:
    """Fetch the output of another job."""
    address = READ_JOB_OUTPUT.address(job=attempt.key[0], name=item.name)
    try:
        with open(path, "wb") as file:
            for piece in attempt.connection.stream(address):
                file.write(piece)
    except RequestRefused as error:
        raise CannotRun(f"input {item.name}: {error}", failure="input") from None


def _fetch_url(item: Input, path: str) -> None:
    if urllib.parse.urlsplit(item.source).scheme not in ("http", "https", "file"):
        raise CannotRun(
            f"input {item.name}: only http, https and file addresses are fetched", failure="input"
        )
    try:
        opened = urllib.request.urlopen(item.source, timeout=_URL_TIMEOUT)  # noqa: S310 (checked above)
        with opened as source, open(path, "wb") as file:
            shutil.copyfileobj(source, file, _CHUNK)
            check_end(source)
    except (OSError, ValueError) as error:
        raise CannotRun(f"input {item.name}: {error}", failure="input") from None
