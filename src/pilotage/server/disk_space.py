"""Free space on the server's disks: new work is refused below a threshold, so that running jobs can still report.

Other programs can fill a disk too. Therefore a reserve file beside an embedded database holds a few MB. It is deleted
when the disk is full, which leaves room for thousands of reports. A database on another machine reports a full disk
by its errors.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import shutil
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Protocol

from pilotage.core.errors import DiskFull, Overloaded, PilotageError

log = logging.getLogger(__name__)

MIN_FREE_FRACTION = 0.05
MIN_FREE = 64
"""MB. New work is refused below this or below `MIN_FREE_FRACTION` of the disk: the larger threshold counts."""
MAX_FREE_FRACTION = 0.25
"""Maximum threshold as a fraction of the disk, so that a small disk accepts work at all."""
HYSTERESIS = 1.1
"""Work is accepted again when the free space is the threshold times this factor, so that the state does not flicker."""
RESERVE_SIZE = 16_000_000
MAX_RESERVE_FRACTION = 0.125
"""Maximum fraction of the disk for the reserve. A smaller disk has none."""
RELEASED_BELOW = 4_000_000
PERIOD = 1.0
RETRY_AFTER = 10.0
FAILURE_HOLD = 10.0
"""Seconds after a failed write for which new work is refused. Small writes may succeed while larger ones still fail."""


class Usage(Protocol):
    """The size of a disk, in bytes."""

    @property
    def total(self) -> int: ...
    @property
    def free(self) -> int: ...


def disk_usage(folder: Path) -> Usage:
    """The disk of a folder. Of a folder that was removed: the disk on which it would be made again."""
    while not folder.exists() and folder != folder.parent:
        folder = folder.parent
    return shutil.disk_usage(folder)


class Reserve:
    """A file beside the database that is deleted when the disk is full."""

    def __init__(self, path: Path, size: int = RESERVE_SIZE) -> None:
        self._path = path
        self.size = size

    @property
    def held(self) -> bool:
        return self._path.exists()

    def keep(self) -> None:
        """Create the file, unless it exists or there is no room."""
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
    """The free space of the server's disks. `low` is the reason for refusing new work; empty: there is room."""

    def __init__(
        self,
        folders: Mapping[str, Path],
        monotonic: Callable[[], float],
        reserve: Reserve | None = None,
        least: int = MIN_FREE,
        usage: Callable[[Path], Usage] = disk_usage,
    ) -> None:
        """`folders`: the folders by their use, such as {"database": ..., "sandboxes": ...}. `least`: MB."""
        self._folders = dict(folders)
        self._reserve = reserve
        self._least = least * 1_000_000
        self._failed = ""
        """The message of the last write's error; empty: it succeeded."""
        self._failed_at = 0.0
        self._monotonic = monotonic
        self.usage = usage
        self.low = ""

    @property
    def is_retry_due(self) -> bool:
        """Whether the last write failed because of a full disk, at least `FAILURE_HOLD` ago."""
        return bool(self._failed) and self._monotonic() - self._failed_at >= FAILURE_HOLD

    def free(self) -> dict[str, int]:
        """Free bytes by folder."""
        return {name: self.usage(folder).free for name, folder in self._folders.items()}

    def check(self) -> None:
        """Raise `DiskFull` if new work is refused."""
        self.refresh()
        if self.low:
            raise DiskFull(
                self.low,
                hint="free some space there, or ask who runs the server to; running jobs still report",
                retry_after=RETRY_AFTER,
            )

    def write_failed(self, error: PilotageError) -> None:
        """Record that a write failed because a disk is full."""
        self._failed, self._failed_at = error.message, self._monotonic()
        self.refresh()

    def write_succeeded(self) -> None:
        """Record that a write succeeded."""
        self._failed = ""
        self.refresh()

    def refresh(self) -> None:
        """Read the free space, and log a change of the state."""
        low = self._shortage()
        if low and not self.low:
            log.warning("%s", low)
        elif self.low and not low:
            log.warning("the disk has room again: new work is accepted")
        self.low = low

    def _shortage(self) -> str:
        for name, folder in self._folders.items():
            usage = self.usage(folder)
            floor = max(min(self._least, usage.total * MAX_FREE_FRACTION), usage.total * MIN_FREE_FRACTION)
            self._update_reserve(name, usage, floor)
            if usage.free < floor * (HYSTERESIS if self.low else 1.0):
                return (
                    f"the disk of the server's {name} is nearly full"
                    f" ({usage.free / usage.total:.1%} of it free): nothing new is accepted"
                )
        return f"{self._failed}: nothing new is accepted" if self._failed else ""

    def _update_reserve(self, name: str, usage: Usage, floor: float) -> None:
        """Delete or create the reserve. It is on the disk of the first folder; other disks do not concern it."""
        reserve = self._reserve
        if reserve is None or name != next(iter(self._folders)):
            return
        if (usage.free < RELEASED_BELOW or self._failed) and reserve.held:
            reserve.release()
            log.warning(
                "the disk is full: released the reserve of %d MB for reports", reserve.size // 1_000_000
            )
        elif usage.free > floor * HYSTERESIS + reserve.size and not self._failed:
            self._create_reserve(reserve, usage)

    @staticmethod
    def _create_reserve(reserve: Reserve, usage: Usage) -> None:
        if reserve.size <= usage.total * MAX_RESERVE_FRACTION:
            reserve.keep()


class DiskWatch:
    """Refreshes the state of the disks. After a failed write it retries a write until that succeeds."""

    def __init__(self, space: DiskSpace, write: Callable[[], Awaitable[object]]) -> None:
        """`write` commits a write that changes no data."""
        self._space = space
        self._write = write

    async def look(self) -> None:
        self._space.refresh()
        if self._space.is_retry_due:
            try:
                await self._write()
            except DiskFull as error:
                self._space.write_failed(error)
            else:
                self._space.write_succeeded()


class FailureLog:
    """Logs the failures of a duty: each kind of failure once, and the first success after it."""

    def __init__(self, duty: str, space: DiskSpace) -> None:
        self._duty = duty
        self._space = space
        self._kind: tuple[object, ...] | None = None
        self._failures = 0

    def record_failure(self, error: Exception) -> None:
        """A cycle has failed."""
        self._failures += 1
        if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
            error = Overloaded(f"a file cannot be written: {error.strerror}", hint="free some space")
        kind = (type(error), "" if isinstance(error, PilotageError) else str(error))
        if isinstance(error, DiskFull):
            # The disk logs one line for all duties.
            self._space.write_failed(error)
        elif kind == self._kind:
            log.debug("%s still fails: %s", self._duty, error)
        elif isinstance(error, PilotageError):
            log.warning("%s: %s", self._duty, error)
        else:
            log.error("%s failed; it will be tried again", self._duty, exc_info=error)
        self._kind = kind

    def record_success(self) -> None:
        """A cycle has succeeded."""
        if self._kind is not None:
            if self._kind[0] is not DiskFull:
                log.warning("%s works again, after %d failed cycles", self._duty, self._failures)
            self._kind, self._failures = None, 0
