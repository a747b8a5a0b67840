"""The files with the results of jobs. A result stays on the disk until it is read."""

from __future__ import annotations

import math
import os
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from weakref import finalize

from pilotage.client.executor import payload
from pilotage.client.executor.node_program import HEADER


class OwnFolder:
    """A folder on the disk for as long as somebody has this object."""

    def __init__(self, path: Path | None = None) -> None:
        """`path`: by default a new one."""
        self.path = path or Path(tempfile.mkdtemp(prefix="pilotage-executor-"))
        finalize(self, _remove, self.path, os.getpid())


def _remove(path: Path, owner: int) -> None:
    """A fork of the process has the objects too, and its end removes nothing."""
    if os.getpid() == owner:
        payload.remove(path)


@dataclass(frozen=True, slots=True)
class ResultFrame:
    """A frame of the file of results: see node_program.py."""

    kind: int
    seconds: float
    read: Callable[[], bytes]
    """The pickled outcome."""


class ResultFile:
    """The results of one job. `owners`: of its folder."""

    def __init__(self, path: Path, *owners: OwnFolder) -> None:
        self._path = path
        self._owners = owners

    def frames(self) -> list[ResultFrame]:
        """The complete frames, in the order of the calls; none if there is no file. The bodies are not read."""
        try:
            file = self._path.open("rb")
        except FileNotFoundError:
            return []
        frames, place = [], 0
        with file:
            size = os.fstat(file.fileno()).st_size
            while place + HEADER.size <= size:
                file.seek(place)
                kind, seconds, length = HEADER.unpack(file.read(HEADER.size))
                place += HEADER.size
                if place + length > size:
                    break
                read = partial(self._read, place, length)
                frames.append(ResultFrame(kind, seconds if 0 <= seconds < math.inf else 0.0, read))
                place += length
        return frames

    def _read(self, place: int, length: int) -> bytes:
        with self._path.open("rb") as file:
            file.seek(place)
            return file.read(length)
