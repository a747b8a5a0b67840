"""The duty that keeps the history of what queues wait for."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from time import perf_counter

from pilotage.core.queues.indexed_queue import IndexedQueue
from pilotage.server.context import Context
from pilotage.services.why import answer, wait_history
from pilotage.store.tables.wait_reasons import ReasonRow

TURN = 0.002
"""Seconds of looking in one turn of the loop."""

PART = 0.1
"""At most this part of the loop's time."""


async def snapshot(context: Context, now: float) -> answer.WaitSnapshot:
    """What `why` looks at, for use in a thread that is not the writer's, or in the loop's."""
    pool, writer = context.pool, context.writer

    def turn(ask: Callable[[], Sequence[IndexedQueue] | None]) -> Sequence[IndexedQueue] | None:
        return writer.call(lambda _: ask())

    return await writer.acall(lambda tx: answer.take_snapshot(pool, tx, now, turn))


class ReasonDuty:
    """Looks at every queue with waiting jobs; writes only what has changed, a few rows in each turn of the writer."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._looker = wait_history.WaitRecorder()
        self._started = False

    def period(self) -> float:
        return (
            answer.RECORD_PERIOD
            if self._context.pool.recorded_reasons is not None
            else wait_history.FIRST_DELAY
        )

    async def cycle(self) -> None:
        pool, writer, clock = self._context.pool, self._context.writer, self._context.clock
        if not self._started:
            self._started = True
            return
        if pool.recorded_reasons is None:
            reasons = await asyncio.to_thread(
                lambda: wait_history.last_reasons(self._context.readers.connection())
            )
            await writer.acall(lambda tx: tx.set(pool, "recorded_reasons", reasons))
        if not any(entry.waiting for entry in list(pool.queues.index.entries.values())) and not any(
            one.reason for one in list((pool.recorded_reasons or {}).values())
        ):
            return
        now = clock()
        found = await snapshot(self._context, now)
        for part in wait_history.chunks(await self._look(found, now)):
            await writer.acall(lambda tx, part=part: wait_history.write(pool, tx, part))  # type: ignore[misc]

    async def _look(self, found: answer.WaitSnapshot, now: float) -> list[ReasonRow]:
        """Half a second and more of questions to the predicate: beside the loop, or in short turns of it."""
        readers, looker = self._context.readers, self._looker
        if not self._context.in_loop:
            return await asyncio.to_thread(lambda: looker.changes(found, readers.connection(), now))
        rows: list[ReasonRow] = []
        begun = perf_counter()
        for changed in looker.steps(found, readers.connection(), now):
            rows += changed
            worked = perf_counter() - begun
            if worked >= TURN:
                if self._context.stop.is_set():
                    break
                await asyncio.sleep(worked / PART - worked)
                begun = perf_counter()
        return rows
