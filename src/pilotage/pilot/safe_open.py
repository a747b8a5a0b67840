"""Opens files below a folder without following symbolic links, even if the folder changes at the same time."""

from __future__ import annotations

import contextlib
import errno
import os
import stat
import unicodedata

NAME_ERRORS = frozenset(
    (
        errno.EISDIR,
        errno.ENOTDIR,
        errno.EEXIST,
        errno.ELOOP,
        errno.ENAMETOOLONG,
        errno.ENXIO,
        errno.EINVAL,
        errno.EILSEQ,
    )
)
"""Errors caused by the name of a file; they would happen on every node."""

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
# Non-blocking: a FIFO that has replaced a file must not block the pilot.
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_FILE_KINDS = (
    (stat.S_ISDIR, "a folder"),
    (stat.S_ISLNK, "a link"),
    (stat.S_ISFIFO, "a FIFO"),
    (stat.S_ISSOCK, "a socket"),
    (stat.S_ISCHR, "a device"),
    (stat.S_ISBLK, "a device"),
)


class NotAFile(OSError):
    """The name does not belong to a regular file."""


def open_root(folder: str) -> int:
    """Open the folder that names are relative to. Raises OSError."""
    return os.open(folder, _FOLDER & ~os.O_NOFOLLOW)


def open_folder(root: int, name: str) -> int:
    """Open the folder `name` below `root`; "" is `root` itself. Raises OSError."""
    return _open_path(root, name, make=False)


def make_folders(root: int, name: str) -> int:
    """Like `open_folder`, but create missing folders, which only this user can enter."""
    return _open_path(root, name, make=True)


def _open_path(root: int, name: str, *, make: bool) -> int:
    here = os.dup(root)
    try:
        for part in name.split("/") if name else ():
            if make:
                with contextlib.suppress(FileExistsError):
                    os.mkdir(part, 0o700, dir_fd=here)
            child = os.open(part, _FOLDER, dir_fd=here)
            os.close(here)
            here = child
    except BaseException:
        os.close(here)
        raise
    return here


def split(name: str) -> "tuple[str, str]":
    """The folder of a relative name ("" for none), and its last part."""
    parent, _, last = name.rpartition("/")
    return parent, last


def open_file(root: int, name: str) -> int:
    """Open the regular file `name` below `root` for reading.

    Raises NotAFile for anything else, which is never opened, and OSError if the file cannot be read.
    """
    parent, last = split(name)
    folder = open_folder(root, parent)
    try:
        check_regular(os.stat(last, dir_fd=folder, follow_symlinks=False).st_mode)
        number = os.open(last, _FILE, dir_fd=folder)
    finally:
        os.close(folder)
    try:
        # The file may have been replaced since the check.
        check_regular(os.fstat(number).st_mode)
    except BaseException:
        os.close(number)
        raise
    return number


def check_regular(mode: int) -> None:
    """Raise NotAFile, naming the kind of file, unless it is a regular file."""
    if not stat.S_ISREG(mode):
        raise NotAFile(f"{kind_of(mode)}, not a regular file")


def kind_of(mode: int) -> str:
    return next((kind for is_kind, kind in _FILE_KINDS if is_kind(mode)), "a special file")


def is_storable_name(name: str) -> bool:
    """Whether a file of this name can be stored and shown: it is UTF-8 without control characters."""
    return name.isprintable() or all(map(_plain, name))


def escape_name(name: str) -> str:
    """The name as text for messages, with unprintable characters escaped."""
    return (
        name if is_storable_name(name) else "".join(char if _plain(char) else _escaped(char) for char in name)
    )


def _plain(char: str) -> bool:
    return unicodedata.category(char) not in ("Cc", "Cs", "Zl", "Zp")


def _escaped(char: str) -> str:
    if "\udc80" <= char <= "\udcff":  # a byte that is not UTF-8
        return f"\\x{ord(char) - 0xDC00:02x}"
    return ascii(char)[1:-1]
