"""Sends the output files of one attempt to its sandbox: in an S3 service, or at the server.

A file that the service does not take goes to the server, so no output is lost while the service is away.
"""

from __future__ import annotations

import os
from typing import IO, Iterator, Optional

from pilotage.wire.data import StoragePlace
from pilotage.wire.storage import RECORD_OUTPUT, SentOutput

from .checksums import Checksum
from .codec import encode
from .events import Key
from .log import log
from .outputs import check_size, upload
from .place import PIECE, DataAttempt
from .s3_place import S3PilotPlace
from .thread_pool import retry_until_available
from .transport import FORBIDDEN, RequestRefused, ServerUnavailable

_LONGEST_NAME = 800
"""Bytes of a name in an S3 service. Keys have at most 1024, with the folder of the attempt."""


class SandboxOutputs:
    """Used in background threads, one after the other."""

    def __init__(self, sandbox: Optional[StoragePlace], key: Key, max_bytes: int) -> None:
        """`sandbox`: None: files go to the server. `max_bytes`: of one file; 0: not known."""
        self._sandbox = sandbox
        self._key = key
        self._max_bytes = max_bytes

    def send(self, attempt: DataAttempt, name: str, file: IO[bytes]) -> None:
        """Store one file. Raises ServerUnavailable, RequestRefused, Unreadable, DataCancelled and OSError."""
        sandbox = self._sandbox
        if sandbox is None or not _fits(name):
            self._send_to_server(attempt, name, file)
            return
        check_size(file, self._max_bytes)
        reason = self._send_to_service(sandbox, attempt, name, file)
        if reason:
            log("the sandbox takes no file, so the server is sent it", job=self._key[0], reason=reason)
            # Other files of this attempt do not wait for the service again.
            self._sandbox = None
            self._send_to_server(attempt, name, file)

    def _send_to_server(self, attempt: DataAttempt, name: str, file: IO[bytes]) -> None:
        retry_until_available(
            lambda: upload(attempt.connection, self._key, name, file, self._max_bytes), attempt.is_cancelled
        )

    def _send_to_service(
        self, sandbox: StoragePlace, attempt: DataAttempt, name: str, file: IO[bytes]
    ) -> str:
        """The reason why the service does not have the file; empty: it has. Raises as `send`."""
        url = f"{sandbox.path}/outputs/{self._key[0]}/{self._key[1]}/{name}"
        checksum = Checksum("md5")
        try:
            etag = S3PilotPlace(sandbox, attempt).write(url, _pieces(file), checksum)
        except OSError as error:
            return str(error)
        return self._record(sandbox, attempt, SentOutput(name, checksum.size, etag))

    def _record(self, sandbox: StoragePlace, attempt: DataAttempt, sent: SentOutput) -> str:
        """Tell the server that the file is complete. Returns and raises as `_send_to_service`."""
        path = RECORD_OUTPUT.address(job=self._key[0], epoch=self._key[1])
        headers = {"Content-Type": "application/json"}
        until = attempt.clock() + sandbox.patience
        try:
            retry_until_available(
                lambda: attempt.connection.request("POST", path, encode(sent), headers),
                lambda: attempt.is_cancelled() or attempt.clock() >= until,
            )
        except ServerUnavailable as error:
            attempt.check()
            return str(error)
        except RequestRefused as error:
            if error.superseded or error.status == FORBIDDEN:
                raise
            return error.error.message
        return ""


def _fits(name: str) -> bool:
    """Whether a file may have this name in an S3 service."""
    try:
        return len(name.encode()) <= _LONGEST_NAME
    except UnicodeError:
        return False


def _pieces(file: IO[bytes]) -> Iterator[bytes]:
    file.seek(0)
    left = os.fstat(file.fileno()).st_size
    while left and (piece := file.read(min(PIECE, left))):
        left -= len(piece)
        yield piece
