"""What keeps submissions from holding up the others: few at a time, and of all of them one write at a time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from pilotage.core.errors import Overloaded
from pilotage.services.pool.state import Pool
from pilotage.services.submission.job_creation import ChunkPace, JobCreator
from pilotage.store.writer.transaction import Transaction
from pilotage.store.writer.writer import Writer

Result = TypeVar("Result")

AT_ONCE = 8
"""Chunks and submissions that may be under way: so many bodies are held in memory."""


class SubmissionGate:
    """The gate that all submissions of one server pass. `pace` says how much one transaction does."""

    def __init__(self, writer: Writer, pace: ChunkPace) -> None:
        self._writer = writer
        self.pace = pace
        self._one = asyncio.Lock()
        self._under_way = 0

    @contextmanager
    def place(self) -> Iterator[None]:
        """For one request. Raises `Overloaded` when all places are taken."""
        if self._under_way >= AT_ONCE:
            raise Overloaded("many submissions are under way", hint="try again in a moment", retry_after=0.2)
        self._under_way += 1
        try:
            yield
        finally:
            self._under_way -= 1

    async def write(self, request: Callable[[Transaction], Result]) -> Result:
        """One large write. Two of them never share a transaction, which would take the time of both."""
        async with self._one:
            return await self._writer.acall(request)

    async def make(self, pool: Pool, making: JobCreator) -> None:
        """Make all jobs, as many in a transaction as its time allows."""
        making.pace = self.pace
        while not await self.write(lambda tx: making.step(pool, tx)):
            pass
