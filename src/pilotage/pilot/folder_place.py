"""A storage place that is a folder of the node, which all pilots of a site can write to.

A file is written under a temporary name, flushed, and renamed. So a file with its final name is complete.
"""

from __future__ import annotations

import contextlib
import os
from typing import Iterable, Iterator, List, Set

from pilotage.wire.data import StoragePlace

from .checksums import Checksum
from .events import Key
from .place import PIECE, DataAttempt

TEMPORARY = ".part"
"""The end of the name of a file that is being written."""
_MAX_FOLDERS = 1000


class FolderPlace:
    """Implements `PlaceAdapter`."""

    def __init__(self, place: StoragePlace, attempt: DataAttempt) -> None:
        self._place = place
        self._attempt = attempt

    def own_folder(self, prefix: str, element: int, key: Key) -> str:
        if not os.path.isdir(self._place.path):
            # It is never made here: below the mount point of a lost file system, files would be hidden later.
            raise NotADirectoryError(f"{self._place.path} is not a folder")
        parent, mode = os.path.join(prefix, str(element)), self._mode
        make_durable_folders(parent, mode)
        return f"{element}/{_make_new_folder(parent, f'{key[0]}-{key[1]}', mode)}"

    @property
    def _mode(self) -> int:
        """The permissions of the place, which its folders and files get: pilots run with a private umask."""
        return os.stat(self._place.path).st_mode & 0o2777

    def write(self, path: str, pieces: Iterable[bytes], checksum: Checksum) -> str:
        mode, temporary = self._mode, path + TEMPORARY
        make_durable_folders(os.path.dirname(path), mode)
        try:
            write_durably(temporary, self._summed(pieces, checksum), mode & 0o666)
            if os.stat(temporary).st_size != checksum.size:
                raise OSError("the file is shorter than what was written")
            os.rename(temporary, path)
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(temporary)
            raise
        flush_folder(os.path.dirname(path))
        return ""

    def _summed(self, pieces: Iterable[bytes], checksum: Checksum) -> Iterator[bytes]:
        for piece in pieces:
            self._attempt.check()
            checksum.update(piece)
            yield piece

    def withdraw(self, prefix: str, names: Iterable[str], folder: str) -> None:
        for name in names:
            with contextlib.suppress(OSError):
                os.unlink(os.path.join(prefix, name))
        with contextlib.suppress(OSError):
            os.rmdir(os.path.join(prefix, folder))

    def read(self, path: str) -> Iterator[bytes]:
        with open(path, "rb") as source:
            while True:
                self._attempt.check()
                piece = source.read(PIECE)
                if not piece:
                    return
                yield piece

    def remove(self, path: str) -> None:
        """Remove a file, and the folders that become empty, up to the place."""
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)
        top, parent = os.path.realpath(self._place.path), os.path.dirname(path)
        while os.path.realpath(parent) != top and len(parent) > 1:
            try:
                os.rmdir(parent)
            except OSError:
                return
            parent = os.path.dirname(parent)

    def sweep(self, root: str, folder: str, kept: Set[str]) -> List[str]:
        """Links are removed, not followed. Empty folders are removed."""
        failures = []
        for parent, folders, names in os.walk(os.path.join(root, folder), topdown=False):
            self._attempt.check()
            links = [name for name in folders if os.path.islink(os.path.join(parent, name))]
            for name in [*names, *links]:
                path = os.path.join(parent, name)
                if os.path.relpath(path, root) in kept:
                    continue
                try:
                    os.unlink(path)
                except FileNotFoundError:
                    continue
                except OSError as error:
                    failures.append(f"{path}: {error.strerror or error}")
            with contextlib.suppress(OSError):
                os.rmdir(parent)
        return failures


def _make_new_folder(parent: str, name: str, mode: int) -> str:
    """Make a folder that did not exist. After a restore of the database, numbers of jobs are used again."""
    for number in range(1, _MAX_FOLDERS):
        candidate = name if number == 1 else f"{name}-{number}"
        try:
            os.mkdir(os.path.join(parent, candidate))
        except FileExistsError:
            continue
        os.chmod(os.path.join(parent, candidate), mode)
        flush_folder(parent)
        return candidate
    raise OSError(f"{parent} has {_MAX_FOLDERS} folders of {name}")


def make_durable_folders(path: str, mode: int) -> None:
    """Make missing folders with these permissions, each flushed to disk. Raises OSError."""
    if os.path.isdir(path):
        return
    parent = os.path.dirname(path)
    make_durable_folders(parent, mode)
    with contextlib.suppress(FileExistsError):
        os.mkdir(path)
        os.chmod(path, mode)
    flush_folder(parent)


def write_durably(path: str, pieces: Iterable[bytes], mode: int) -> None:
    """Write a new file and flush it to disk. Raises OSError."""
    with open(path, "xb") as file:
        for piece in pieces:
            file.write(piece)
        os.fchmod(file.fileno(), mode)
        file.flush()
        os.fsync(file.fileno())


def flush_folder(path: str) -> None:
    """Flush the entries of a folder. Raises OSError."""
    number = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(number)
    finally:
        os.close(number)
