"""The duty of agents: silent ones end, and their work gets other agents."""

from __future__ import annotations

from pilotage.server.context import Context
from pilotage.server.duties.row_by_row import POSTGRESQL_AIM, SLICE_AIM, RowByRow
from pilotage.services.workqueue import expiry

AGENT_PERIOD = 2.0
"""Seconds between two cycles."""


class AgentDuty:
    """Ends agents whose lease is over, and gives their split elements to live agents of the team."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._rows = RowByRow(context.writer, SLICE_AIM if context.in_loop else POSTGRESQL_AIM)

    async def cycle(self) -> None:
        context, queue = self._context, self._context.work_queue
        now = context.clock()
        await self._rows.step(
            "end lost agents",
            lambda tx: expiry.over(tx, now),
            lambda tx, gone: expiry.expire(queue, tx, now, gone),
        )
        for agent in await context.writer.acall(lambda tx: expiry.abandoned(tx, now)):
            while await context.writer.acall(
                lambda tx, agent=agent: expiry.take_over(queue, tx, now, [agent])  # type: ignore[misc]
            ):
                pass
