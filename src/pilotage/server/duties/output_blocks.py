"""The duty of output blocks: closes blocks that jobs have filled, so that the next step or a merge can take them."""

from __future__ import annotations

import asyncio

from pilotage.server.context import Context
from pilotage.services.catalogue import outputs
from pilotage.services.catalogue.outputs import BLOCKS_AT_ONCE, BlockLimits

PERIOD = 10.0


class OutputBlockDuty:
    """Looks at the open blocks in a thread, and closes the due ones in short transactions."""

    def __init__(self, context: Context) -> None:
        self._context = context

    def period(self) -> float:
        return PERIOD

    async def cycle(self) -> None:
        context = self._context
        limits = BlockLimits.of(context.pool.policy)
        due = await asyncio.to_thread(
            lambda: outputs.due_blocks(context.readers.connection(), context.clock(), limits)
        )
        closed = 0
        for dataset, blocks in due.items():
            for first in range(0, len(blocks), BLOCKS_AT_ONCE):
                part = blocks[first : first + BLOCKS_AT_ONCE]
                closed += await context.writer.acall(
                    lambda tx, dataset=dataset, part=part: outputs.close_blocks(tx, dataset, part)  # type: ignore[misc]
                )
        if closed:
            context.wake_intake.set()
