"""Asks the S3 services of the policy whether they serve, so that a problem is known before jobs meet it."""

from __future__ import annotations

import asyncio

from pilotage.server.context import Context
from pilotage.server.daemon_threads import DaemonThreads
from pilotage.server.duties.duty import Duty


class StorageDuty(Duty):
    """Keeps the states of S3 places. Each server asks for itself, since it makes addresses by its own key."""

    name = "storage"
    every = 60.0
    """Seconds between two questions to a place."""

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self._threads = DaemonThreads(self.name)
        self._running: dict[str, asyncio.Future[str]] = {}
        """The places that are being asked."""

    async def work(self) -> None:
        context = self._context
        policy, clients = context.pool.policy, context.work.storage
        places = {name for name, place in policy.storage.items() if place.type == "s3"}
        for name in clients.states.keys() - places:
            del clients.states[name]
        self._running = {name: asked for name, asked in self._running.items() if not asked.done()}
        loop, now = asyncio.get_running_loop(), context.clock()
        for name in sorted(places - self._running.keys()):
            self._running[name] = loop.run_in_executor(self._threads, clients.check, policy, name, now)
