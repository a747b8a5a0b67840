"""The working directories of payloads. A directory that a payload has left clean is used again.

On a file system with a journal, creating and removing two folders and two files costs more than starting a process.
A directory is reused only for payloads of the same owner and group. It is reused only if the pilot had no descendant
process when this was checked, so that no process can have its files open.

The full check reads both folders. It is left out if both still have their time of change (ctime). The kernel sets it
at each change of entries, mode, owner and attributes, and no program can set it. Clocks of file systems are coarse.
So this counts only for a payload that began `SETTLED` seconds after that time was seen first.
"""

from __future__ import annotations

import math
import os
import stat
from typing import FrozenSet, List, Sequence, Tuple

Owner = Tuple[str, str]
"""Owner and group."""
_STREAM = stat.S_IFREG | 0o600
_MAX_KEPT = 16
"""Clean directories kept for later payloads."""
SETTLED = 2.5
"""Seconds: more than the coarsest clock of a file system, which counts in steps of two seconds."""


class WorkDir:
    """A working directory, and a folder for temporary files beside it."""

    def __init__(self, folder: str, owner: Owner) -> None:
        """Raises OSError."""
        self.folder, self.tmp, self.owner = folder, folder + ".tmp", owner
        self._streams: FrozenSet[str] = frozenset()
        self._times: Tuple[Tuple[int, ...], ...] = ()
        """Times of both folders when they were last read whole."""
        self._times_since = math.inf
        self._is_settled = False
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

    def clean(self, streams: FrozenSet[str], files: Sequence[int], now: float) -> bool:
        """Empty the files of standard output and error; False if anything else was created or changed.

        `files`: the descriptors with which the pilot opened them.
        """
        try:
            times = self._current_times()
            if not (self._is_settled and times == self._times and streams == self._streams):
                if not self._has_only(streams, files):
                    return False
                if times != self._times:
                    self._times, self._times_since = times, now
            for number in files:
                status = os.fstat(number)
                if status.st_mode != _STREAM or status.st_nlink != 1:
                    return False
                if status.st_size:
                    os.ftruncate(number, 0)
        except OSError:
            return False
        self._streams = streams
        return True

    def begin(self, streams: FrozenSet[str], now: float) -> None:
        """Prepare a clean directory for a payload with these files. Raises OSError."""
        self._is_settled = now - self._times_since >= SETTLED
        # Empty files that the payload does not use.
        for name in self._streams - streams:
            os.unlink(os.path.join(self.folder, name))

    def _current_times(self) -> Tuple[Tuple[int, ...], ...]:
        statuses = (os.lstat(self.folder), os.lstat(self.tmp))
        return tuple(
            (status.st_dev, status.st_ino, status.st_mode, status.st_ctime_ns, status.st_mtime_ns)
            for status in statuses
        )

    def _has_only(self, streams: FrozenSet[str], files: Sequence[int]) -> bool:
        """Whether both folders are unchanged and hold these files only, under these names. Raises OSError."""
        if self._current_state() != self._initial_state or os.listdir(self.tmp):
            return False
        names = frozenset(os.listdir(self.folder))
        if names != streams:
            return False
        named = {_identity(os.lstat(os.path.join(self.folder, name))) for name in names}
        return named == {_identity(os.fstat(number)) for number in files}

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


def _identity(status: os.stat_result) -> Tuple[int, int]:
    return status.st_dev, status.st_ino


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

    def take(self, owner: Owner, streams: FrozenSet[str], now: float) -> WorkDir:
        """A directory for a payload with these files of standard output and error. Raises OSError."""
        for work_dir in self._clean:
            if work_dir.owner == owner:
                self._clean.remove(work_dir)
                work_dir.begin(streams, now)
                return work_dir
        self._count += 1
        return WorkDir(os.path.join(self._parent, f"payload-{self._count}"), owner)

    def give_back(self, work_dir: WorkDir, streams: FrozenSet[str], files: Sequence[int], now: float) -> bool:
        """Keep a directory for another payload; False if it is not clean. The pilot must have no descendants."""
        if len(self._clean) >= _MAX_KEPT or not work_dir.clean(streams, files, now):
            return False
        self._clean.append(work_dir)
        return True
