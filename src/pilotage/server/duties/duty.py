"""The base of all duties. The loop runs nothing else, so that each duty isolates failing rows and tells them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from math import inf
from typing import ClassVar

from pilotage.server.context import Context
from pilotage.server.duties.row_by_row import POSTGRESQL_AIM, SLICE_AIM, RowByRow


class Duty(ABC):
    """Periodic work of a server.

    A duty looks at its rows through `_rows`. A row that fails is then isolated, and the duty goes on with the others.
    `/metrics` and `status` show the row. Of a duty that works on one thing as a whole they show the failed cycle.
    """

    name: ClassVar[str]
    """In `/metrics` and `status`."""
    lease: ClassVar[str] = ""
    """The lease that a server of several needs for this duty; empty: each server has this duty."""
    every: ClassVar[float] = inf
    """Seconds between two cycles, unless `period` calculates them."""
    aim: ClassVar[float] = SLICE_AIM
    """Seconds for the rows of one transaction on SQLite."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self.idle_until = -inf
        """Until then, by `context.monotonic`, no cycle is needed unless the store changes. Each cycle begins with -inf.

        It counts for a single server on SQLite only.
        """
        self.woken = True
        """Whether an event woke this cycle, or it is the first one; else its period was over."""
        aim = self.aim if context.writer.in_loop else POSTGRESQL_AIM
        self._rows = RowByRow(context.writer, context.duties.failing.of(self.name), context.monotonic, aim)

    def period(self) -> float:
        """Seconds between two cycles that nothing wakes."""
        return self.every

    @abstractmethod
    async def work(self) -> None:
        """One cycle."""

    async def cycle(self) -> None:
        """Run one cycle, and forget failing rows that need this duty no more."""
        self.idle_until = -inf
        self._rows.begin_cycle()
        await self.work()
        self._rows.end_cycle()
