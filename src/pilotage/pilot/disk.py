"""The disk of the work folder: its free space, and the part of their demand that running payloads have written.

The free space is read in the loop's thread. A background thread reads the folders of the payloads that ask for disk.
"""

from __future__ import annotations

import math
import os
from typing import Callable, Dict, List, Mapping, NamedTuple, Tuple

from pilotage.wire.pilot import MB

from .events import DiskMeasured, Event, Key, PayloadEnded
from .payload import RunningPayload
from .thread_pool import ThreadPool

FREE_PERIOD = 1.0
"""Seconds between two readings of the free space, unless a payload ends."""
WRITTEN_PERIOD = 30.0
"""Seconds between two readings of the folders of payloads, at least."""
_COST_FACTOR = 50
"""Reading the folders may use at most 1/50 of a core."""
MAX_ENTRIES = 100_000
"""Entries of one payload's folders that are read. More count as not written, so the pilot offers too little."""


class WorkDisk:
    """Measures the disk when it is due. For the loop's thread."""

    def __init__(self, folder: str, background: ThreadPool, clock: Callable[[], float]) -> None:
        self._folder = folder
        self._background = background
        self._clock = clock
        self._free_at = -math.inf
        """The instant of the next reading of the free space; `_written_at`: of the folders."""
        self._written_at = -math.inf
        self._written: Dict[Key, int] = {}

    def measure(self, running: Mapping[Key, RunningPayload], events: List[Event]) -> List[Event]:
        """The new measurement, if one is due. After the end of a payload in `events` it is due."""
        now = self._clock()
        if now >= self._written_at:
            self._measure_written(running)
        if now < self._free_at and not any(isinstance(event, PayloadEnded) for event in events):
            return []
        self._free_at = now + FREE_PERIOD
        return [DiskMeasured(free_space(self._folder), self._written)]

    def _measure_written(self, running: Mapping[Key, RunningPayload]) -> None:
        folders = {
            key: (payload.work_dir.folder, payload.work_dir.tmp)
            for key, payload in running.items()
            if payload.payload.disk and payload.work_dir is not None
        }
        if not folders:
            self._written = {}
            return
        self._written_at = math.inf
        began = self._clock()

        def keep(result: Dict[Key, int], error: object) -> None:
            now = self._clock()
            self._written_at = now + max(WRITTEN_PERIOD, _COST_FACTOR * (now - began))
            self._written = {} if error is not None else result

        self._background.submit(
            lambda connection: {key: contents(paths).written // MB for key, paths in folders.items()}, keep
        )


def free_space(folder: str) -> float:
    """MB that this user may still write to the disk of a folder; infinite: not known."""
    try:
        status = os.statvfs(folder)
    except OSError:
        return math.inf
    return status.f_bavail * status.f_frsize // MB


class Contents(NamedTuple):
    """The files below some folders."""

    written: int
    """Bytes on the disk."""
    changed_at: float
    """When a file that is not empty changed last, by the clock of the file system; 0: there is none."""


def contents(folders: Tuple[str, ...]) -> Contents:
    """The files below these folders, as far as they can be read. Links are not followed."""
    total, changed_at, left, waiting = 0, 0.0, MAX_ENTRIES, list(folders)
    while waiting and left > 0:
        try:
            with os.scandir(waiting.pop()) as entries:
                for entry in entries:
                    left -= 1
                    status = entry.stat(follow_symlinks=False)
                    total += status.st_blocks * 512
                    if entry.is_dir(follow_symlinks=False):
                        waiting.append(entry.path)
                    elif status.st_size:
                        changed_at = max(changed_at, status.st_mtime)
                    if left <= 0:
                        break
        except OSError:
            continue
    return Contents(total, changed_at)
