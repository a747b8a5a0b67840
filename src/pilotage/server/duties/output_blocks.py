"""The duty of output blocks: closes blocks that jobs have filled, so that the next step or a merge can take them."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import partial

from pilotage.server.duties.duty import Duty
from pilotage.services.catalogue import outputs
from pilotage.services.catalogue.outputs import BLOCKS_AT_ONCE, BegunBlock, BlockLimits
from pilotage.store.writer.transaction import Transaction


class OutputBlockDuty(Duty):
    """Looks at the open blocks in a thread, and closes the due ones in short transactions."""

    name = lease = "output blocks"
    every = 10.0

    async def work(self) -> None:
        context = self._context
        limits = BlockLimits.of(context.pool.policy)
        due: dict[int, list[int]] = {}

        async def look(begun: Sequence[BegunBlock]) -> None:
            of_dataset = await asyncio.to_thread(
                lambda: outputs.due_blocks(context.readers.connection(), begun, context.clock(), limits)
            )
            for dataset, blocks in of_dataset.items():
                due.setdefault(dataset, []).extend(blocks)

        begun = await asyncio.to_thread(lambda: outputs.begun_blocks(context.readers.connection()))
        await self._rows.together("look at open blocks", begun, look)
        closed = 0
        for dataset, blocks in due.items():
            closed += await self._rows.in_slices(
                "close blocks",
                blocks,
                partial(_close, dataset),
                BLOCKS_AT_ONCE,
            )
        if closed:
            context.wake.intake.set()


def _close(dataset: int, tx: Transaction, blocks: Sequence[int]) -> int:
    return outputs.close_blocks(tx, dataset, blocks)
