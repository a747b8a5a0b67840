"""Steps of a duty over many rows. A row that fails does not stop the others."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Hashable, Iterable, Sequence
from time import perf_counter
from typing import TypeVar

from pilotage.core.errors import Overloaded, Superseded
from pilotage.store.engine.connection import ServerEvicted
from pilotage.store.writer.transaction import Transaction
from pilotage.store.writer.writer import Writer

log = logging.getLogger(__name__)

Row = TypeVar("Row", bound=Hashable)
Done = TypeVar("Done")

SLICE_AIM = 0.001
"""Seconds for the rows of one transaction on SQLite, which runs in the event loop."""
POSTGRESQL_AIM = 0.02
FIRST_SLICE = 4
LARGEST_SLICE = 500


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


class SlicePace:
    """Adapts the rows of one transaction so that it takes `aim` seconds."""

    def __init__(self, aim: float, clock: Callable[[], float] = perf_counter) -> None:
        self.size = FIRST_SLICE
        self._aim = aim
        self._clock = clock

    def measured(self, rows: int, work: Callable[[], Done]) -> Done:
        """Do the work for some rows. A slow slice makes the next ones smaller at once, fast ones let them grow."""
        begun = self._clock()
        done = work()
        seconds = max(1e-6, self._clock() - begun)
        target = rows * self._aim / seconds
        if target < self.size or rows == self.size:
            self.size = round(max(1, min(target, 2 * self.size, LARGEST_SLICE)))
        return done


class RowByRow:
    """Runs a step for all its rows, a few in each transaction, so that other requests run between them.

    If a transaction fails, each of its rows gets its own. A row that fails alone is logged once and then excluded from
    the common transactions. Every cycle tries it again alone, so it succeeds as soon as its cause is gone.
    """

    def __init__(self, writer: Writer, aim: float = SLICE_AIM) -> None:
        """`aim`: seconds that a transaction should take."""
        self._writer = writer
        self._aim = aim
        self._paces: dict[str, SlicePace] = {}
        self.failing: dict[str, set[Hashable]] = {}
        """The failing rows of each step."""

    async def step(
        self,
        name: str,
        find: Callable[[Transaction], Sequence[Row]],
        act: Callable[[Transaction, Sequence[Row]], int],
    ) -> int:
        """Call `act` with the rows that `find` returns, until it returns no new ones. Returns the sum of its results.

        `act` must check again whether a row still needs it: other requests run between `find` and `act`.
        Errors that concern no single row are raised: an unreachable database, an evicted server, a lost duty lease.
        """
        failing = self.failing.setdefault(name, set())
        failed_before, seen, done = set(failing), set[Row](), 0
        while rows := [row for row in await self._writer.acall(find) if row not in seen]:
            seen.update(rows)
            done += await self._in_slices(name, [row for row in rows if row not in failing], act)
        failing &= seen
        for row in seen & failed_before:
            done += await self._alone(name, row, act)
        return done

    async def _in_slices(
        self, name: str, rows: Sequence[Row], act: Callable[[Transaction, Sequence[Row]], int]
    ) -> int:
        pace = self._paces.setdefault(name, SlicePace(self._aim))
        done = first = 0
        while first < len(rows):
            part = rows[first : first + pace.size]
            first += len(part)
            try:
                done += await self._writer.acall(
                    lambda tx, part=part: pace.measured(len(part), lambda: act(tx, part))  # type: ignore[misc]
                )
            except (Overloaded, Superseded, ServerEvicted):
                raise
            except Exception as error:
                log.debug("%s: %s; trying each row alone", name, error)
                for row in part:
                    done += await self._alone(name, row, act)
        return done

    async def _alone(self, name: str, row: Row, act: Callable[[Transaction, Sequence[Row]], int]) -> int:
        failing = self.failing[name]
        try:
            done = await self._writer.acall(lambda tx: act(tx, [row]))
        except (Overloaded, Superseded, ServerEvicted):
            raise
        except Exception:
            if row not in failing:
                failing.add(row)
                log.exception(
                    "%s failed for %s; other rows are not affected, and it will be tried again", name, row
                )
            return 0
        failing.discard(row)
        return done
