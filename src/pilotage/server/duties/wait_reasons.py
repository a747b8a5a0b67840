"""The duty that records the history of wait reasons."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from pilotage.core.ids import QueueId
from pilotage.core.queues.indexed_queue import IndexedQueue
from pilotage.server.context import Context
from pilotage.server.duties.duty import Duty
from pilotage.server.loop_turns import in_turns
from pilotage.services.director.ce_status import closed_ces
from pilotage.services.why import answer, wait_history
from pilotage.store.tables.wait_reasons import ReasonRow
from pilotage.store.writer.transaction import Transaction

MAX_LOAD = 0.1
"""Maximum fraction of the event loop's time."""


async def snapshot(context: Context, now: float) -> answer.WaitSnapshot:
    """The input of `why`, for use in the event loop's thread or in any thread other than the writer's."""
    pool, writer = context.pool, context.writer

    def turn(ask: Callable[[], Sequence[IndexedQueue] | None]) -> Sequence[IndexedQueue] | None:
        return writer.call(lambda _: ask())

    def take(tx: Transaction) -> answer.WaitSnapshot:
        closed = closed_ces(pool.policy, tx.connection, now)
        return answer.take_snapshot(pool, tx, now, turn, closed)

    return await writer.acall(take)


class ReasonDuty(Duty):
    """Analyses every queue with waiting jobs, and stores changed reasons, a few rows in each transaction."""

    name = lease = "reasons"

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self._recorder = wait_history.WaitRecorder()
        self._started = False

    def period(self) -> float:
        return (
            answer.RECORD_PERIOD
            if self._context.pool.queues.recorded_reasons is not None
            else wait_history.FIRST_DELAY
        )

    async def work(self) -> None:
        pool, writer, clock = self._context.pool, self._context.writer, self._context.clock
        if not self._started:
            self._started = True
            return
        if pool.queues.recorded_reasons is None:
            reasons = await asyncio.to_thread(
                lambda: wait_history.last_reasons(self._context.readers.connection())
            )
            await writer.acall(lambda tx: tx.set(pool.queues, "recorded_reasons", reasons))
        if not any(entry.waiting for entry in list(pool.queues.index.entries.values())) and not any(
            recorded.reason for recorded in list((pool.queues.recorded_reasons or {}).values())
        ):
            return
        now = clock()
        taken = await snapshot(self._context, now)
        rows = {row.queue: row for row in await self._analyse(taken, now)}
        for queue, error in self._recorder.take_failures():
            self._rows.failed("analyse queues", queue, error)

        def write(tx: Transaction, queues: Sequence[QueueId]) -> int:
            wait_history.write(pool.queues, tx, [rows[queue] for queue in queues])
            return len(queues)

        await self._rows.in_slices("store reasons", sorted(rows), write, wait_history.CHUNK_SIZE)

    async def _analyse(self, taken: answer.WaitSnapshot, now: float) -> list[ReasonRow]:
        """The analysis may take over half a second: it runs in a thread, or in short slices of the event loop."""
        readers, recorder, monotonic = self._context.readers, self._recorder, self._context.monotonic
        if not self._context.writer.in_loop:
            return await asyncio.to_thread(lambda: recorder.changes(taken, readers.connection(), now))
        rows: list[ReasonRow] = []
        async for changed in in_turns(recorder.steps(taken, readers.connection(), now), monotonic, MAX_LOAD):
            rows += changed
            if self._context.stop.is_set():
                break
        return rows
