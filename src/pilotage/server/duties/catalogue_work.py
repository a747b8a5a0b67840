"""The base of duties that call outside catalogues.

Each catalogue is served in a task of its own, since an answer may take minutes. Its calls run in threads.
"""

from __future__ import annotations

import asyncio
import logging
from abc import abstractmethod
from collections.abc import Callable
from typing import TypeVar

from pilotage.core.errors import Forbidden, NotAuthenticated, PilotageError, Unreachable
from pilotage.core.short_text import cut_middle
from pilotage.outside.catalogue.adapter import CatalogueAdapter
from pilotage.server.catalogue_clients import log_change
from pilotage.server.context import Context
from pilotage.server.daemon_threads import DaemonThreads
from pilotage.server.duties.duty import Duty
from pilotage.services.catalogue import following

log = logging.getLogger(__name__)

Value = TypeVar("Value")

OF_THE_CATALOGUE = (Unreachable, NotAuthenticated, Forbidden)
"""Errors that concern all that a catalogue is asked, if it does not greet either."""
LONGEST_PROBLEM = 500
"""Characters of a problem."""


class CatalogueWork(Duty):
    """Serves the catalogues that are due. One that does not answer holds up no other one."""

    every = 2.0
    """Seconds between two looks for work."""

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self._threads = DaemonThreads(self.name)
        self._running: dict[str, asyncio.Task[None]] = {}
        """The catalogues that are being served."""
        self._failed: dict[str, float] = {}
        """When the last try at a catalogue failed."""

    @abstractmethod
    async def asked_for(self, name: str, now: float) -> float | None:
        """When somebody last asked for the work at a catalogue that is due; None: nothing is due."""

    @abstractmethod
    async def serve(self, name: str, adapter: CatalogueAdapter) -> None:
        """Do the work at a catalogue that has just answered."""

    async def work(self) -> None:
        now = self._context.clock()
        self._running = {name: task for name, task in self._running.items() if not task.done()}
        for name in self._context.pool.policy.catalogues:
            if name in self._running:
                continue
            asked = await self.asked_for(name, now)
            if asked is not None and not self._is_resting(name, asked, now):
                self._running[name] = asyncio.create_task(self._serve(name))

    def _is_resting(self, name: str, asked: float, now: float) -> bool:
        """Whether this work failed at the catalogue a moment ago, and nobody asks again since.

        The trouble of another duty is its own: else a block that cannot be registered would end all readings.
        """
        failed = self._failed.get(name)
        retry = self._context.pool.policy.catalogues[name].retry
        return failed is not None and 0 <= now - failed < retry and asked <= failed

    async def _serve(self, name: str) -> None:
        try:
            adapter = self._context.work.catalogues.adapter(self._context.pool.policy, name)
            software = await self.call(adapter.greet)
            await self.serve(name, adapter)
        except PilotageError as error:
            await self._record(name, problem=told(error))
        except Exception as error:
            log.exception("catalogue %s: %s failed", name, self.name)
            await self._record(name, problem=f"{self.name} failed: {type(error).__name__}")
        else:
            await self._record(name, software=software)

    async def check_serves(self, adapter: CatalogueAdapter, error: PilotageError) -> None:
        """Raise the reason if the whole catalogue is away, and not the subject of one failed call only."""
        if isinstance(error, OF_THE_CATALOGUE):
            await self.call(adapter.greet)

    async def _record(self, name: str, *, problem: str = "", software: str = "") -> None:
        now = self._context.clock()
        if problem:
            self._failed[name] = now
        else:
            self._failed.pop(name, None)
        change = await self._context.writer.acall(
            lambda tx: following.record_answer(tx, name, now, problem=problem, software=software)
        )
        log_change(change)

    async def call(self, make: Callable[[], Value]) -> Value:
        """The result of a call that may take minutes."""
        return await asyncio.get_running_loop().run_in_executor(self._threads, make)

    def close(self) -> None:
        """End the work. Nobody waits for calls that hang."""
        for task in self._running.values():
            task.cancel()
        self._context.work.catalogues.close()


def told(error: PilotageError) -> str:
    """A problem as it is stored."""
    return cut_middle(str(error), LONGEST_PROBLEM)
