"""What the writer's transactions take."""

from __future__ import annotations

from dataclasses import dataclass
from time import perf_counter, thread_time
from typing import NamedTuple

SLOW_TRANSACTION = 0.005
"""Seconds; bulk work is cut so that no transaction takes longer."""


class TimeSpent(NamedTuple):
    """Seconds: by the clock, and of the thread's processor time."""

    clock: float
    processor: float

    @classmethod
    def now(cls) -> TimeSpent:
        """Where counting begins."""
        return cls(perf_counter(), thread_time())

    def until_now(self) -> TimeSpent:
        """What has gone since, in the same thread."""
        return TimeSpent(perf_counter() - self.clock, thread_time() - self.processor)


@dataclass(slots=True)
class TransactionTimes:
    """How long the transactions took that were committed; seconds."""

    work: float = 0.0
    """From their beginning to their commit, all of them."""
    commit: float = 0.0
    longest_work: float = 0.0
    longest: float = 0.0
    """With its commit, which now and then makes a checkpoint."""
    slow: int = 0
    """Those whose work took more than `SLOW_TRANSACTION`."""
    busy: int = 0
    """Those of them that were at work for so long: others had to wait, for a disk or for a turn of the processor."""

    def took(self, work: TimeSpent, commit: float) -> None:
        self.work += work.clock
        self.commit += commit
        self.longest_work = max(self.longest_work, work.clock)
        self.longest = max(self.longest, work.clock + commit)
        self.slow += work.clock > SLOW_TRANSACTION
        self.busy += work.processor > SLOW_TRANSACTION
