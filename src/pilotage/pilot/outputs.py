"""Upload what a payload leaves behind: what is looked for, and in which way, stands in `search`."""

from __future__ import annotations

import os
import urllib.parse
from typing import IO

from .events import Key
from .safe_open import open_file, open_root
from .transport import Connection


class Unreadable(Exception):
    """The file can't be sent, however often it is tried."""


def open_output(folder: str, source: str) -> IO[bytes]:
    """Open one for reading, sure that it is a regular file inside the folder. Raises OSError."""
    root = open_root(folder)
    try:
        return os.fdopen(open_file(root, source), "rb")
    finally:
        os.close(root)


class _AnnouncedBytes:
    """As many bytes of a file as were announced. Raises Unreadable if they are not there."""

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
            # Said apart from errors of the network, which are tried again.
            raise Unreadable(f"cannot be read: {error.strerror or error}") from None
        if not data:
            raise Unreadable("it became shorter while it was sent")
        self._remaining -= len(data)
        return data


def upload(
    connection: Connection, key: Key, name: str, file: IO[bytes], max_bytes: int = 0, kind: str = "outputs"
) -> None:
    """Stream one open file up. Raises Away, Refused or Unreadable.

    `most`: bytes that the server takes; 0: not known. Bytes that are added meanwhile are left out.
    `place`: "outputs", or "streams" of a killed job.
    """
    size = os.fstat(file.fileno()).st_size
    if max_bytes and size > max_bytes:
        raise Unreadable(f"it has {size:,} bytes, and at most {max_bytes:,} are taken")
    file.seek(0)
    path = f"/v1/pilot/jobs/{key[0]}/{key[1]}/{kind}/{urllib.parse.quote(name)}"
    headers = {"Content-Type": "application/octet-stream", "Content-Length": str(size)}
    connection.request("PUT", path, _AnnouncedBytes(file, size), headers)
