"""Uploads the output files of a payload. `output_search` finds them."""

from __future__ import annotations

import os
from typing import IO, Any

from pilotage.wire.call import ApiCall
from pilotage.wire.pilot_calls import STORE_OUTPUT

from .events import Key
from .safe_open import open_file, open_root
from .transport import ServerConnection


class Unreadable(Exception):
    """The file cannot be sent, and another try would not help."""


def open_output(folder: str, source: str) -> IO[bytes]:
    """Open a regular file inside the folder for reading; links are not followed. Raises OSError."""
    root = open_root(folder)
    try:
        return os.fdopen(open_file(root, source), "rb")
    finally:
        os.close(root)


class _AnnouncedBytes:
    """The announced number of bytes of a file. Raises Unreadable if the file has become shorter."""

    def __init__(self, file: IO[bytes], size: int) -> None:
        self._file = file
        self._remaining = size

    def read(self, max_bytes: int = -1) -> bytes:
        wanted = self._remaining if max_bytes < 0 else min(max_bytes, self._remaining)
        if not wanted:
            return b""
        try:
            data = self._file.read(wanted)
        except OSError as error:
            # A class of its own: errors of the network are OSErrors too, and lead to another try.
            raise Unreadable(f"cannot be read: {error.strerror or error}") from None
        if not data:
            raise Unreadable("it became shorter while it was sent")
        self._remaining -= len(data)
        return data


def check_size(file: IO[bytes], max_bytes: int) -> int:
    """The size of an open file. Raises Unreadable if it is larger than `max_bytes`; 0: the limit is not known."""
    size = os.fstat(file.fileno()).st_size
    if max_bytes and size > max_bytes:
        raise Unreadable(f"it has {size:,} bytes: at most {max_bytes:,} are accepted")
    return size


def upload(
    connection: ServerConnection,
    key: Key,
    name: str,
    file: IO[bytes],
    max_bytes: int = 0,
    call: ApiCall[Any, None] = STORE_OUTPUT,
) -> None:
    """Upload one open file. Raises ServerUnavailable, RequestRefused or Unreadable.

    `max_bytes`: the server's limit; 0: not known. Bytes appended during the upload are left out.
    `call`: STORE_OUTPUT, or STORE_STREAM for a killed job.
    """
    size = check_size(file, max_bytes)
    file.seek(0)
    path = call.address(job=key[0], epoch=key[1], name=name, stream=name)
    headers = {"Content-Type": "application/octet-stream", "Content-Length": str(size)}
    connection.request(call.method, path, _AnnouncedBytes(file, size), headers)
