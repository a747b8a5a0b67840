"""Jobs in place: they run in a folder that this node shares with the machine where they were submitted.

Before such a job starts, the folder is compared with its mark, the inode numbers of the folder and of the one above it.
On a shared file system all hosts see the same numbers. The device differs from host to host, so it is not compared.
Local disks that were copied bit by bit have the same numbers, and look shared. Some FUSE file systems have other
numbers on each host, and look like other folders.
"""

from __future__ import annotations

import errno
import os
import re
import socket
import stat
from typing import Tuple

from pilotage.wire.pilot import Payload

from .cannot_run import NOT_EXECUTABLE, CannotRun

_MARK = "ino:"
_LEFT_PATTERNS = re.compile("%(%|[0-9]{0,2}N)")
_OF_NODE = (errno.EIO, errno.ESTALE, errno.ETIMEDOUT, errno.EMFILE, errno.ENFILE, errno.ENOMEM)
"""Errors for which the node is to blame, and not the user's folder."""


class OtherFolder(Exception):
    """The node has another folder at the path, or none: it does not share it."""


def check_folder(folder: str, mark: str) -> None:
    """Check that this is the folder where the job was submitted.

    Raises OtherFolder if this node does not share it, and CannotRun if it was removed or may not be entered.
    """
    try:
        here = _inode(folder)
        if here is None:
            if mark and _has_same_parent(folder, mark):
                raise CannotRun(f"the folder {folder} does not exist any more", NOT_EXECUTABLE)
            raise OtherFolder(f"this node has no folder {folder}")
        # A folder that was removed and made again has another number, below the same folder.
        if mark and here[0] != _numbers(mark)[0] and not _has_same_parent(folder, mark, here[1]):
            raise OtherFolder(f"this node does not share {folder}: it has another folder there")
        if not os.access(folder, os.X_OK):
            raise CannotRun(f"the folder {folder} may not be entered", NOT_EXECUTABLE)
    except OSError as error:
        raise _cannot("folder", folder, error) from None


def _numbers(mark: str) -> Tuple[int, ...]:
    return tuple(int(number) for number in mark[len(_MARK) :].split("/"))


def _inode(folder: str) -> "Tuple[int, int] | None":
    """The inode number and device of a folder; None: there is none."""
    try:
        status = os.stat(folder)
    except (FileNotFoundError, NotADirectoryError):
        return None
    return (status.st_ino, status.st_dev) if stat.S_ISDIR(status.st_mode) else None


def _has_same_parent(folder: str, mark: str, device: int = -1) -> bool:
    """Whether the folder above has the number of the mark. `device`: where it must be; negative: anywhere."""
    numbers = _numbers(mark)
    above = _inode(os.path.dirname(folder))
    return len(numbers) > 1 and above is not None and above[0] == numbers[1] and device in (above[1], -1)


def umask_of(payload: Payload) -> int:
    """The umask of a payload, -1 for that of the pilot."""
    return int(payload.umask, 8) if payload.umask else -1


def open_in_place(payload: Payload, name: str) -> int:
    """Open a file for standard output or error as the user named it. Raises CannotRun."""
    host = socket.gethostname().partition(".")[0]
    name = _LEFT_PATTERNS.sub(lambda found: "%" if found[1] == "%" else host, name)
    path = os.path.join(payload.folder, name)
    # Non-blocking: a FIFO would wait for its reader.
    flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOCTTY | os.O_NONBLOCK
    try:
        try:
            number = os.open(path, flags | os.O_EXCL, 0o600)
            if payload.umask:
                os.fchmod(number, 0o666 & ~umask_of(payload))
        except FileExistsError:
            number = os.open(path, flags if payload.open_mode == "append" else flags | os.O_TRUNC, 0o600)
    except (OSError, ValueError) as error:
        raise _cannot("standard output or error", path, error) from None
    status = os.fstat(number)
    if not stat.S_ISREG(status.st_mode) and os.path.realpath(path) != os.devnull:
        os.close(number)
        raise CannotRun(
            f"standard output or error: {path} is neither a regular file nor {os.devnull}", NOT_EXECUTABLE
        )
    os.set_blocking(number, True)
    return number


def _cannot(what: str, path: str, error: Exception) -> CannotRun:
    is_node = isinstance(error, OSError) and error.errno in _OF_NODE
    reason = (error.strerror if isinstance(error, OSError) else "") or str(error)
    return CannotRun(
        f"{what}: {path}: {reason}", None if is_node else NOT_EXECUTABLE, "node" if is_node else ""
    )
