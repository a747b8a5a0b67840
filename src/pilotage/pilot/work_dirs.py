"""The folders that payloads run in. One that was left as clean as a new one is used again.

On a file system with a journal, to make and remove two folders and two files costs more than to start a process. A
workplace is used again only if no process lived below the pilot when that was looked at, so that nobody can have its
files open, and only for payloads of the same owner and group.
"""

from __future__ import annotations

import os
import stat
from typing import FrozenSet, List, Tuple

Owner = Tuple[str, str]
"""Owner and group."""
_STREAM = stat.S_IFREG | 0o600
_MAX_KEPT = 16
"""So many are kept for the next payloads."""


class WorkDir:
    """A working directory, and a folder for temporary files beside it."""

    def __init__(self, folder: str, owner: Owner) -> None:
        """Raises OSError."""
        self.folder, self.tmp, self.owner = folder, folder + ".tmp", owner
        self._streams: FrozenSet[str] = frozenset()
        os.mkdir(self.folder, 0o700)
        os.mkdir(self.tmp, 0o700)
        self._initial_state = self._current_state()

    def _current_state(self) -> List[Tuple[object, ...]]:
        states: List[Tuple[object, ...]] = []
        for folder in (self.folder, self.tmp):
            status = os.lstat(folder)
            mode, links = status.st_mode, status.st_nlink
            states.append((status.st_dev, status.st_ino, mode, status.st_uid, links, _attributes(folder)))
        return states

    def clean(self, streams: FrozenSet[str]) -> bool:
        """Empty the files of standard output and error; False if there is, or was done, anything else."""
        try:
            if self._current_state() != self._initial_state or os.listdir(self.tmp):
                return False
            if frozenset(os.listdir(self.folder)) != streams:
                return False
            for name in streams:
                path = os.path.join(self.folder, name)
                status = os.lstat(path)
                if status.st_mode != _STREAM or status.st_nlink != 1:
                    return False
                if status.st_size:
                    os.truncate(path, 0)
        except OSError:
            return False
        self._streams = streams
        return True

    def keep_only(self, streams: FrozenSet[str]) -> None:
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

    def take(self, owner: Owner, streams: FrozenSet[str]) -> WorkDir:
        """One for a payload with these files of standard output and error. Raises OSError."""
        for work_dir in self._clean:
            if work_dir.owner == owner:
                self._clean.remove(work_dir)
                work_dir.keep_only(streams)
                return work_dir
        self._count += 1
        return WorkDir(os.path.join(self._parent, f"payload-{self._count}"), owner)

    def give_back(self, work_dir: WorkDir, streams: FrozenSet[str]) -> bool:
        """Keep it for another payload; False if it cannot be. No process may live below the pilot."""
        if len(self._clean) >= _MAX_KEPT or not work_dir.clean(streams):
            return False
        self._clean.append(work_dir)
        return True
