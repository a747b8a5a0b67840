"""Errors of files of sandboxes: of their names, and of a full disk."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pilotage.core.errors import DiskFull

NAME_ERRORS = frozenset(
    {
        errno.ENOTDIR,
        errno.EISDIR,
        errno.EEXIST,
        errno.ENOTEMPTY,
        errno.ENAMETOOLONG,
        errno.EINVAL,
        errno.EILSEQ,
    }
)
"""Errors that the requested name of a file causes."""
_NO_ROOM = (errno.ENOSPC, errno.EDQUOT)


@contextmanager
def disk_errors() -> Iterator[None]:
    """Tell a full disk as `DiskFull`."""
    try:
        yield
    except OSError as error:
        if error.errno not in _NO_ROOM:
            raise
        raise DiskFull(
            f"the disk of the server's sandboxes has no room: {error.strerror}",
            hint="it is sent again; free some space there",
            retry_after=30.0,
        ) from None


def force_folder(folder: Path) -> None:
    """Force the names of a folder's files to the disk."""
    directory = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)
