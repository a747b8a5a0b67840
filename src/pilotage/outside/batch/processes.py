"""The processes of this machine by their stamps, as /proc shows them: the evidence of the local adapter."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from pilotage.outside.batch.adapter import split_stamp
from pilotage.outside.batch.submission import STAMP_PREFIX

PROPERTIES = "--properties="

_YOUNG = 2.0
"""Seconds. A process that is older and has no arguments after a few looks never gets any."""

_PAUSES = (0.001, 0.002, 0.005, *([0.01] * 4), *([0.05] * 9))
"""Seconds before each further look at processes that have no arguments yet: half a second altogether."""

_LOOKS_AT_OLD = 3
"""Further looks at a process that is not young. It may be between two programs, as a shell at its `exec` is."""

_EXITING = 0x4
_KERNEL_THREAD = 0x200000
"""Flags of a process. Both kinds have no arguments, and never get any."""

PilotName = tuple[str, int | None]
"""The stamp of a submission and the index of the pilot in it."""


class Process(NamedTuple):
    pid: int
    session: int
    started: int
    """Clock ticks since boot."""
    properties: str = ""
    flags: int = 0


class Processes:
    """Reads /proc. A process between its start and its program has no arguments, so it is read again."""

    def __init__(self, folder: Path = Path("/proc"), pause: Callable[[float], object] = time.sleep) -> None:
        self._folder = folder
        self._pause = pause

    def find(self, pid: int) -> Process | None:
        """A living process; None if it is gone or a zombie. `PermissionError`: /proc does not say."""
        try:
            text = (self._folder / str(pid) / "stat").read_text()
        except (FileNotFoundError, ProcessLookupError):
            return None
        fields = text.rpartition(")")[2].split()
        if fields[0] in ("Z", "X"):
            return None
        return Process(pid, int(fields[3]), int(fields[19]), flags=int(fields[6]))

    def with_stamps(self, stamps: Collection[str] | None) -> tuple[dict[PilotName, list[Process]], bool]:
        """The living processes that have one of the stamps as an argument, and whether the listing is complete.

        None as stamps: all arguments that look like stamps. A process that was just started and gets no arguments
        within half a second makes the listing incomplete.
        """
        wanted = None if stamps is None else frozenset(stamps)
        listed: dict[PilotName, list[Process]] = {}
        # Where /proc hides the processes of others it hides pilots too: they have closed their memory.
        complete = (self._folder / "1").exists()
        starting: list[Process] = []
        for pid in self._pids():
            try:
                process = self._read(pid, wanted, listed)
            except PermissionError:
                complete = False
                continue
            if process is not None:
                starting.append(process)
        starting = self._read_again(starting, wanted, listed)
        return listed, complete and not starting

    def _pids(self) -> Iterator[int]:
        with os.scandir(self._folder) as entries:
            for entry in entries:
                if entry.name.isdecimal():
                    yield int(entry.name)

    def _read(
        self, pid: int, wanted: Collection[str] | None, listed: dict[PilotName, list[Process]]
    ) -> Process | None:
        """Add a process to the listing, if it is a pilot's. Returned if it has no arguments but may get some."""
        try:
            content = (self._folder / str(pid) / "cmdline").read_bytes()
        except (FileNotFoundError, ProcessLookupError):
            return None
        words = content.decode(errors="replace").split("\0")
        pilots = _pilots_in(words, wanted)
        process = self.find(pid) if pilots or not content else None
        if process is None:
            return None
        if not pilots:
            return None if process.flags & (_EXITING | _KERNEL_THREAD) else process
        properties = next((word for word in words if word.startswith(PROPERTIES)), "")
        known = process._replace(properties=properties.removeprefix(PROPERTIES))
        for pilot in pilots:
            listed.setdefault(pilot, []).append(known)
        return None

    def _read_again(
        self, starting: list[Process], wanted: Collection[str] | None, listed: dict[PilotName, list[Process]]
    ) -> list[Process]:
        """Read processes without arguments until they have some. Young ones that have none in the end are returned."""
        for look, pause in enumerate(_PAUSES):
            if look == _LOOKS_AT_OLD:
                youngest = self._youngest()
                starting = [process for process in starting if process.started >= youngest]
            if not starting:
                break
            self._pause(pause)
            again = [self._read(process.pid, wanted, listed) for process in starting]
            starting = [process for process in again if process is not None]
        return starting

    def _youngest(self) -> float:
        """A process that was started later, in clock ticks since boot, may still be without arguments."""
        return (time.clock_gettime(time.CLOCK_BOOTTIME) - _YOUNG) * os.sysconf("SC_CLK_TCK")


def _pilots_in(words: Sequence[str], stamps: Collection[str] | None) -> set[PilotName]:
    """The stamps among the arguments of a process, each with its index. None: all arguments that look like stamps."""
    if stamps is None:
        pilots = (split_stamp(word) for word in words if word.startswith(STAMP_PREFIX))
        return {pilot for pilot in pilots if pilot[1] is not None}
    return {pilot for pilot in map(split_stamp, words) if pilot[0] in stamps}
