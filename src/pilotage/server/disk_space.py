"""Room on the server's disks: new work is refused below a floor, so that reports of running jobs still find some.

A disk can also be filled by others. For that a file beside an embedded database holds a few MB, which are given free
when nothing else is left: thousands of reports fit. A database on another machine tells by its errors that it is full.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import shutil
import time
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Protocol

from pilotage.core.errors import DiskFull, Overloaded, PilotageError

log = logging.getLogger(__name__)

LEAST_PART = 0.05
LEAST_FREE = 64
"""MB. Nothing new is accepted below this or below `LEAST_PART` of the disk, whichever is more."""
MOST_PART = 0.25
"""Of a small disk; otherwise nothing would ever be accepted there."""
ENOUGH = 1.1
"""So many times the floor must be free before new work is accepted again: the state does not flicker."""
RESERVED = 16_000_000
RESERVED_PART = 0.125
"""Of the disk, at most: a smaller one has no reserve."""
RELEASED_BELOW = 4_000_000
PERIOD = 1.0
RETRY_AFTER = 60.0
HELD = 10.0
"""Seconds after a failed write for which nothing new is accepted. Small writes may succeed where others still fail."""


class Usage(Protocol):
    """Of a disk, in bytes."""

    @property
    def total(self) -> int: ...
    @property
    def free(self) -> int: ...


class Reserve:
    """Bytes that are kept beside the database for when the disk is full."""

    def __init__(self, path: Path, size: int = RESERVED) -> None:
        self._path = path
        self.size = size

    @property
    def held(self) -> bool:
        return self._path.exists()

    def keep(self) -> None:
        """Take the bytes, unless they are held or cannot be had."""
        if self.held:
            return
        try:
            handle = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                os.posix_fallocate(handle, 0, self.size)
            finally:
                os.close(handle)
        except OSError:
            self.release()

    def release(self) -> None:
        with contextlib.suppress(OSError):
            self._path.unlink(missing_ok=True)


class DiskSpace:
    """What is free where the server writes. `low` says why nothing new is accepted; empty: there is room."""

    def __init__(
        self,
        folders: Mapping[str, Path],
        reserve: Reserve | None = None,
        least: int = LEAST_FREE,
        clock: Callable[[], float] = time.monotonic,
        usage: Callable[[Path], Usage] = shutil.disk_usage,
    ) -> None:
        """`folders`: what lies where, such as {"database": ..., "sandboxes": ...}. `least`: MB."""
        self._folders = dict(folders)
        self._reserve = reserve
        self._least = least * 1_000_000
        self._failed = ""
        """What a write has failed with; empty: the last one has not."""
        self._failed_at = 0.0
        self._clock = clock
        self._usage = usage
        self.low = ""

    @property
    def to_be_tried(self) -> bool:
        """Whether the database could not be written for want of room, and that was a while ago."""
        return bool(self._failed) and self._clock() - self._failed_at >= HELD

    def free(self) -> dict[str, int]:
        """Bytes that are free for each of the folders."""
        return {name: self._usage(folder).free for name, folder in self._folders.items()}

    def check(self) -> None:
        """Raise `DiskFull` if nothing new is accepted."""
        self.look()
        if self.low:
            raise DiskFull(
                self.low,
                hint="free some space there, or ask who runs the server to; running jobs still report",
                retry_after=RETRY_AFTER,
            )

    def write_failed(self, error: PilotageError) -> None:
        """A write has failed for want of room."""
        self._failed, self._failed_at = error.message, self._clock()
        self.look()

    def written(self) -> None:
        """A write has not failed."""
        self._failed = ""
        self.look()

    def look(self) -> None:
        """See what is free; a change is logged."""
        low = self._shortage()
        if low and not self.low:
            log.warning("%s", low)
        elif self.low and not low:
            log.warning("there is room on the disk again: new work is accepted")
        self.low = low

    def _shortage(self) -> str:
        for name, folder in self._folders.items():
            usage = self._usage(folder)
            floor = max(min(self._least, usage.total * MOST_PART), usage.total * LEAST_PART)
            self._see_to_reserve(name, usage, floor)
            if usage.free < floor * (ENOUGH if self.low else 1.0):
                return (
                    f"the disk of the server's {name} is nearly full"
                    f" ({usage.free / usage.total:.1%} of it free): nothing new is accepted"
                )
        return f"{self._failed}: nothing new is accepted" if self._failed else ""

    def _see_to_reserve(self, name: str, usage: Usage, floor: float) -> None:
        """The reserve lies on the disk of the first folder; another one may be full without need of it."""
        reserve = self._reserve
        if reserve is None or name != next(iter(self._folders)):
            return
        if (usage.free < RELEASED_BELOW or self._failed) and reserve.held:
            reserve.release()
            log.warning(
                "the disk is full: %d MB were kept for reports and are free now", reserve.size // 1_000_000
            )
        elif usage.free > floor * ENOUGH + reserve.size and not self._failed:
            self._take_reserve(reserve, usage)

    @staticmethod
    def _take_reserve(reserve: Reserve, usage: Usage) -> None:
        if reserve.size <= usage.total * RESERVED_PART:
            reserve.keep()


class DiskDuty:
    """Looks at the disks; after a write has failed it tries one until that succeeds."""

    def __init__(self, space: DiskSpace, write: Callable[[], Awaitable[object]]) -> None:
        """`write` changes the database and nothing in it."""
        self._space = space
        self._write = write

    async def cycle(self) -> None:
        self._space.look()
        if self._space.to_be_tried:
            try:
                await self._write()
            except DiskFull as error:
                self._space.write_failed(error)
            else:
                self._space.written()


class Troubles:
    """What is wrong with a duty, told when it changes and not in each of its cycles."""

    def __init__(self, duty: str, space: DiskSpace) -> None:
        self._duty = duty
        self._space = space
        self._kind: tuple[object, ...] | None = None
        self._times = 0

    def met(self, error: Exception) -> None:
        """A cycle has failed."""
        self._times += 1
        if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
            error = Overloaded(f"a file cannot be written: {error.strerror}", hint="free some space")
        kind = (type(error), "" if isinstance(error, PilotageError) else str(error))
        if isinstance(error, DiskFull):
            # Of all duties one line, the disk's own.
            self._space.write_failed(error)
        elif kind == self._kind:
            log.debug("%s still fails: %s", self._duty, error)
        elif isinstance(error, PilotageError):
            log.warning("%s: %s", self._duty, error)
        else:
            log.error("%s failed; it is tried again", self._duty, exc_info=error)
        self._kind = kind

    def over(self) -> None:
        """A cycle has succeeded."""
        if self._kind is not None:
            if self._kind[0] is not DiskFull:
                log.warning("%s works again, after %d failed cycles", self._duty, self._times)
            self._kind, self._times = None, 0
