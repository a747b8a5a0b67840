"""The duty of agents: silent ones end, and their work gets other agents."""

from __future__ import annotations

from functools import partial

from pilotage.server.duties.duty import Duty
from pilotage.services.workqueue import expiry


class AgentDuty(Duty):
    """Ends agents whose lease is over, and gives their split elements to live agents of the team."""

    name = lease = "agents"
    every = 2.0

    async def work(self) -> None:
        context, work_queue = self._context, self._context.work.work_queue
        now = context.clock()
        await self._rows.step(
            "end lost agents",
            lambda tx: expiry.over(tx, now),
            lambda tx, gone: expiry.expire(work_queue, tx, now, gone),
        )
        for agent in await context.writer.acall(lambda tx: expiry.abandoned(tx, now)):
            await self._rows.alone("take over elements", agent, partial(self._take_over, agent, now))

    async def _take_over(self, agent: int, now: float) -> None:
        work_queue, writer = self._context.work.work_queue, self._context.writer
        while await writer.acall(lambda tx: expiry.take_over(work_queue, tx, now, [agent])):
            pass
