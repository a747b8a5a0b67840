"""Steps of a duty over many rows: a row that cannot be carried out does not stop the others."""

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
    """Carry out all steps in order, whatever becomes of one. Then raise the first error, if there was one."""
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
    """Carries steps out for all their rows in one transaction; if that fails, for each row in its own.

    A row that fails by itself is logged once and left out from then on. It is tried again alone in every cycle, so
    it comes in as soon as its cause is gone.
    """

    def __init__(self, writer: Writer) -> None:
        self._writer = writer
        self.failing: dict[str, set[Hashable]] = {}
        """By step: the rows that fail."""

    async def step(
        self,
        name: str,
        find: Callable[[Transaction], Sequence[Row]],
        act: Callable[[Transaction, Sequence[Row]], int],
    ) -> int:
        """Do `act` to the rows that `find` gives; the sum of what it returns.

        Errors that concern no row (the database is away, the server or its duty is given up) are raised.
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
            log.debug("%s: %s; each row is tried by itself", name, error)
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
                log.exception("%s failed for %s; the others go on, and it is tried again", name, row)
            return 0
        failing.discard(row)
        return done
