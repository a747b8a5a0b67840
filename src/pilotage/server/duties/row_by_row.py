"""Steps of a duty over many rows. A row that fails does not stop the others."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Hashable, Iterable, Sequence
from functools import partial
from typing import TypeVar

from pilotage.core.errors import Overloaded, Superseded
from pilotage.core.slice_pace import LARGEST_SLICE, SlicePace
from pilotage.server.failing_rows import DutyFailures
from pilotage.store.engine.connection import ServerEvicted
from pilotage.store.writer.transaction import Transaction
from pilotage.store.writer.writer import Writer

log = logging.getLogger(__name__)

Row = TypeVar("Row", bound=Hashable)
Done = TypeVar("Done")
Given = TypeVar("Given")

SLICE_AIM = 0.001
"""Seconds for the rows of one transaction on SQLite, which runs in the event loop."""
POSTGRESQL_AIM = 0.02

CONCERN_ALL = (Overloaded, Superseded, ServerEvicted)
"""Errors that concern no single row."""


async def each(steps: Iterable[Callable[[], Awaitable[None]]]) -> None:
    """Run all steps in order, even if one fails. Then raise the first error, if any."""
    failed: Exception | None = None
    for step in steps:
        try:
            await step()
        except ServerEvicted:
            raise
        except Exception as error:
            failed = failed or error
    if failed is not None:
        raise failed


class RowByRow:
    """Runs the steps of a duty for all their rows, so that a row that fails does not stop the others.

    Steps in transactions take a few rows each, so that other requests run between them. If a transaction fails, each of
    its rows gets its own. A row that fails alone is logged once and then excluded from the common transactions. Every
    cycle tries it again alone, so it succeeds as soon as its cause is gone.

    Errors that concern no single row are raised: an unreachable database, an evicted server, a lost duty lease.
    """

    def __init__(
        self,
        writer: Writer,
        failures: DutyFailures,
        monotonic: Callable[[], float],
        aim: float = SLICE_AIM,
    ) -> None:
        """`aim`: seconds that a transaction should take."""
        self._writer = writer
        self._failures = failures
        self._monotonic = monotonic
        self._aim = aim
        self._paces: dict[str, SlicePace] = {}
        self._tried: dict[str, set[Hashable]] = {}
        """The rows of each step in this cycle."""
        self._left_out: set[str] = set()

    def begin_cycle(self) -> None:
        self._tried.clear()
        self._left_out.clear()

    def end_cycle(self) -> None:
        """Forget the failing rows that the cycle has not found any more."""
        nothing = set[Hashable]()
        self._failures.keep_tried(
            lambda step: None if step in self._left_out else self._tried.get(step, nothing)
        )

    def leave_out(self, step: str) -> None:
        """Keep the failing rows of a step, since the cycle does not look at all of its rows."""
        self._left_out.add(step)

    def pace(self, step: str) -> SlicePace:
        """The pace of the transactions of a step."""
        return self._paces.setdefault(step, SlicePace(self._aim, self._monotonic))

    async def step(
        self,
        name: str,
        find: Callable[[Transaction], Sequence[Row]],
        act: Callable[[Transaction, Sequence[Row]], int],
    ) -> int:
        """Call `act` with the rows that `find` returns, until it returns no new ones. Returns the sum of its results.

        `act` must check again whether a row still needs it: other requests run between `find` and `act`.
        """
        seen, done = set[Row](), 0
        while rows := [row for row in await self._writer.acall(find) if row not in seen]:
            seen.update(rows)
            done += await self.in_slices(name, rows, act)
        return done

    async def in_slices(
        self,
        name: str,
        rows: Sequence[Row],
        act: Callable[[Transaction, Sequence[Row]], int],
        most: int = LARGEST_SLICE,
    ) -> int:
        """Call `act` with all of these rows, at most `most` in each transaction. Returns the sum of its results."""
        failing, pace = self._failures.rows_of(name), self.pace(name)
        sound = [row for row in rows if row not in failing]
        done = first = 0
        while first < len(sound):
            part = sound[first : first + min(pace.size, most)]
            first += len(part)
            try:
                done += await self._writer.acall(partial(_measured, pace, len(part), act, part))
            except CONCERN_ALL:
                raise
            except Exception as error:
                log.debug("%s: %s; trying each row alone", name, error)
                for row in part:
                    done += await self._in_own_transaction(name, row, act)
        for row in rows:
            if row in failing:
                done += await self._in_own_transaction(name, row, act)
        self._tried.setdefault(name, set()).update(rows)
        return done

    async def until_done(
        self, name: str, act: Callable[[Transaction, int], bool], stop: asyncio.Event
    ) -> None:
        """Call `act` with the rows of a slice until it returns that nothing is left, or the server stops."""
        pace, done = self.pace(name), False
        while not done and not stop.is_set():
            done = await self._writer.acall(partial(_measured, pace, pace.size, act, pace.size))

    async def together(
        self, name: str, rows: Sequence[Row], act: Callable[[Sequence[Row]], Awaitable[None]]
    ) -> None:
        """Run an action that takes all rows at once. If it fails, it gets halves of them, down to the failing rows."""
        failing = self._failures.rows_of(name)
        sound = [row for row in rows if row not in failing]
        if sound:
            await self._halves(name, sound, act)
        for row in rows:
            if row in failing:
                await self.alone(name, row, partial(act, [row]))
        self._tried.setdefault(name, set()).update(rows)

    async def _halves(
        self, name: str, rows: Sequence[Row], act: Callable[[Sequence[Row]], Awaitable[None]]
    ) -> None:
        if len(rows) == 1:
            await self.alone(name, rows[0], lambda: act(rows))
            return
        try:
            await act(rows)
        except CONCERN_ALL:
            raise
        except Exception as error:
            log.debug("%s: %s; trying halves of %d rows", name, error, len(rows))
            middle = len(rows) // 2
            for half in (rows[:middle], rows[middle:]):
                await self._halves(name, half, act)

    async def _in_own_transaction(
        self, name: str, row: Row, act: Callable[[Transaction, Sequence[Row]], int]
    ) -> int:
        return await self.alone(name, row, lambda: self._writer.acall(lambda tx: act(tx, [row]))) or 0

    async def alone(self, name: str, row: Hashable, act: Callable[[], Awaitable[Done]]) -> Done | None:
        """Run an action for one row; None: it failed."""
        try:
            done = await act()
        except CONCERN_ALL:
            raise
        except Exception as error:
            self.failed(name, row, error)
            return None
        self.succeeded(name, row)
        return done

    def failed(self, name: str, row: Hashable, error: Exception) -> None:
        """Note that an action for a row has failed, where it does not run through `alone`."""
        self._tried.setdefault(name, set()).add(row)
        if self._failures.add(name, row, error):
            text = "%s failed for %s; other rows are not affected, and it will be tried again"
            log.error(text, name, row, exc_info=error)

    def succeeded(self, name: str, row: Hashable) -> None:
        self._tried.setdefault(name, set()).add(row)
        self._failures.discard(name, row)


def _measured(
    pace: SlicePace, rows: int, act: Callable[[Transaction, Given], Done], given: Given, tx: Transaction
) -> Done:
    return pace.measured(rows, lambda: act(tx, given))
