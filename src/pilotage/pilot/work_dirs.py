"""The folders that payloads run in. One that was left as clean as a new one is used again.

On a file system with a journal, to make and remove two folders and two files costs more than to start a process. A
workplace is used again only if no process lived below the pilot when that was looked at, so that nobody can have its
files open, and only for payloads of the same owner and group.
"""

from __future__ import annotations

import os
import stat
from typing import FrozenSet, List, Tuple

Whom = Tuple[str, str]
"""Owner and group."""
_STREAM = stat.S_IFREG | 0o600
_MOST = 16
"""So many are kept for the next payloads."""


class WorkDir:
    """A working directory, and a folder for temporary files beside it."""

    def __init__(self, folder: str, whom: Whom) -> None:
        """Raises OSError."""
        self.folder, self.tmp, self.whom = folder, folder + ".tmp", whom
        self._streams: FrozenSet[str] = frozenset()
        os.mkdir(self.folder, 0o700)
        os.mkdir(self.tmp, 0o700)
        self._made = self._identity()

    def _identity(self) -> List[Tuple[object, ...]]:
        folders = (self.folder, self.tmp)
        found = [(os.lstat(folder), _attributes(folder)) for folder in folders]
        return [(one.st_dev, one.st_ino, one.st_mode, one.st_uid, one.st_nlink, more) for one, more in found]

    def cleaned(self, streams: FrozenSet[str]) -> bool:
        """Empty the files of standard output and error; False if there is, or was done, anything else."""
        try:
            if self._identity() != self._made or os.listdir(self.tmp):
                return False
            if frozenset(os.listdir(self.folder)) != streams:
                return False
            for name in streams:
                place = os.path.join(self.folder, name)
                found = os.lstat(place)
                if found.st_mode != _STREAM or found.st_nlink != 1:
                    return False
                if found.st_size:
                    os.truncate(place, 0)
        except OSError:
            return False
        self._streams = streams
        return True

    def without_others(self, streams: FrozenSet[str]) -> None:
        """Of the empty files leave those that the next payload begins with. Raises OSError."""
        for name in self._streams - streams:
            os.unlink(os.path.join(self.folder, name))

    def remove(self, streams: FrozenSet[str]) -> bool:
        """Remove the folders if there is nothing in them but these files; False if more is to be done."""
        try:
            for name in streams:
                os.unlink(os.path.join(self.folder, name))
            os.rmdir(self.tmp)
            os.rmdir(self.folder)
        except OSError:
            return False
        return True


def _attributes(folder: str) -> Tuple[str, ...]:
    """The names of its extended attributes, lists of access rights among them."""
    try:
        return tuple(os.listxattr(folder, follow_symlinks=False))
    except OSError:  # this file system has none
        return ()


class WorkDirs:
    def __init__(self, parent: str) -> None:
        self._parent = parent
        self._count = 0
        self._clean: List[WorkDir] = []

    def take(self, whom: Whom, streams: FrozenSet[str]) -> WorkDir:
        """One for a payload with these files of standard output and error. Raises OSError."""
        for place in self._clean:
            if place.whom == whom:
                self._clean.remove(place)
                place.without_others(streams)
                return place
        self._count += 1
        return WorkDir(os.path.join(self._parent, f"payload-{self._count}"), whom)

    def give_back(self, place: WorkDir, streams: FrozenSet[str]) -> bool:
        """Keep it for another payload; False if it cannot be. No process may live below the pilot."""
        if len(self._clean) >= _MOST or not place.cleaned(streams):
            return False
        self._clean.append(place)
        return True
