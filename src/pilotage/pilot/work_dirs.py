"""The working directories of payloads. A directory that a payload has left clean is used again.

On a file system with a journal, creating and removing two folders and two files costs more than starting a process.
A directory is reused only for payloads of the same owner and group. It is reused only if the pilot had no descendant
process when this was checked, so that no process can have its files open.
"""

from __future__ import annotations

import os
import stat
from typing import FrozenSet, List, Tuple

Owner = Tuple[str, str]
"""Owner and group."""
_STREAM = stat.S_IFREG | 0o600
_MAX_KEPT = 16
"""Clean directories kept for later payloads."""


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
        """Empty the files of standard output and error; False if anything else was created or changed."""
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
        """Remove the empty files that the next payload does not use. Raises OSError."""
        for name in self._streams - streams:
            os.unlink(os.path.join(self.folder, name))

    def remove(self, streams: FrozenSet[str]) -> bool:
        """Remove the folders if they contain these files only; False if they remain."""
        try:
            for name in streams:
                os.unlink(os.path.join(self.folder, name))
            os.rmdir(self.tmp)
            os.rmdir(self.folder)
        except OSError:
            return False
        return True


def _attributes(folder: str) -> Tuple[str, ...]:
    """The names of the folder's extended attributes, which include access control lists."""
    try:
        return tuple(os.listxattr(folder, follow_symlinks=False))
    except OSError:  # this file system has no extended attributes
        return ()


class WorkDirs:
    """Creates working directories, and keeps clean ones for reuse."""

    def __init__(self, parent: str) -> None:
        self._parent = parent
        self._count = 0
        self._clean: List[WorkDir] = []

    def take(self, owner: Owner, streams: FrozenSet[str]) -> WorkDir:
        """A directory for a payload with these files of standard output and error. Raises OSError."""
        for work_dir in self._clean:
            if work_dir.owner == owner:
                self._clean.remove(work_dir)
                work_dir.keep_only(streams)
                return work_dir
        self._count += 1
        return WorkDir(os.path.join(self._parent, f"payload-{self._count}"), owner)

    def give_back(self, work_dir: WorkDir, streams: FrozenSet[str]) -> bool:
        """Keep a directory for another payload; False if it is not clean. The pilot must have no descendants."""
        if len(self._clean) >= _MAX_KEPT or not work_dir.clean(streams):
            return False
        self._clean.append(work_dir)
        return True
