"""Timing of the writer's transactions. It is shown to people and decides nothing, so it reads the clock itself."""

from __future__ import annotations

from dataclasses import dataclass
from time import perf_counter, thread_time
from typing import NamedTuple

SLOW_TRANSACTION = 0.005
"""Seconds. Bulk work is split so that no transaction takes longer."""


class TimeSpent(NamedTuple):
    """Seconds: by the clock, and of the thread's processor time."""

    clock: float
    processor: float

    @classmethod
    def now(cls) -> TimeSpent:
        """The start of a measurement."""
        return cls(perf_counter(), thread_time())

    def until_now(self) -> TimeSpent:
        """The time since then. Call it in the same thread."""
        return TimeSpent(perf_counter() - self.clock, thread_time() - self.processor)


@dataclass(slots=True)
class TransactionTimes:
    """Durations of committed transactions, in seconds."""

    work: float = 0.0
    """The total from begin to commit."""
    commit: float = 0.0
    longest_work: float = 0.0
    longest: float = 0.0
    """The longest transaction with its commit, which sometimes makes a checkpoint."""
    slow: int = 0
    """Transactions with more than `SLOW_TRANSACTION` from begin to commit."""
    busy: int = 0
    """Slow transactions that used the processor for that long. The others waited for a disk or for the processor."""

    def took(self, work: TimeSpent, commit: float) -> None:
        self.work += work.clock
        self.commit += commit
        self.longest_work = max(self.longest_work, work.clock)
        self.longest = max(self.longest, work.clock + commit)
        self.slow += work.clock > SLOW_TRANSACTION
        self.busy += work.processor > SLOW_TRANSACTION
