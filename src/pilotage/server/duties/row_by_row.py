"""Steps of a duty over many rows. A row that fails does not stop the others."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Hashable, Iterable, Sequence
from typing import TypeVar

from pilotage.core.errors import Overloaded, Superseded
from pilotage.store.engine.connection import ServerEvicted
from pilotage.store.writer.transaction import Transaction
from pilotage.store.writer.writer import Writer

log = logging.getLogger(__name__)

Row = TypeVar("Row", bound=Hashable)


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
    """Runs a step for all its rows in one transaction. If that fails, each row gets its own transaction.

    A row that fails alone is logged once and then excluded from the common transaction. Every cycle tries it again
    alone, so it succeeds as soon as its cause is gone.
    """

    def __init__(self, writer: Writer) -> None:
        self._writer = writer
        self.failing: dict[str, set[Hashable]] = {}
        """The failing rows of each step."""

    async def step(
        self,
        name: str,
        find: Callable[[Transaction], Sequence[Row]],
        act: Callable[[Transaction, Sequence[Row]], int],
    ) -> int:
        """Call `act` with the rows that `find` returns. Returns the sum of its results.

        Errors that concern no single row are raised: an unreachable database, an evicted server, a lost duty lease.
        """
        failing = self.failing.setdefault(name, set())
        try:
            done = await self._writer.acall(
                lambda tx: act(tx, [row for row in find(tx) if row not in failing])
            )
            if not failing:
                return done
        except (Overloaded, Superseded, ServerEvicted):
            raise
        except Exception as error:
            log.debug("%s: %s; trying each row alone", name, error)
            done = 0
        rows = await self._writer.acall(find)
        failing &= set(rows)
        for row in rows:
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
