"""Limits concurrent submissions, so that they do not delay other requests."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from pilotage.core.errors import Overloaded
from pilotage.core.slice_pace import SlicePace
from pilotage.services.pool.state import Pool
from pilotage.services.submission.job_creation import JobCreator
from pilotage.store.writer.transaction import Transaction
from pilotage.store.writer.writer import Writer

Result = TypeVar("Result")

MAX_CONCURRENT = 8
"""Maximum concurrent chunks and submissions, with a body in memory each."""


class SubmissionGate:
    """The gate that all submissions of one server pass. `pace` limits the work of one transaction."""

    def __init__(self, writer: Writer, pace: SlicePace) -> None:
        self._writer = writer
        self.pace = pace
        self._write_lock = asyncio.Lock()
        self._under_way = 0

    @contextmanager
    def place(self) -> Iterator[None]:
        """A place for one request. Raises `Overloaded` if all places are taken."""
        if self._under_way >= MAX_CONCURRENT:
            raise Overloaded("many submissions are under way", hint="try again in a moment", retry_after=0.2)
        self._under_way += 1
        try:
            yield
        finally:
            self._under_way -= 1

    async def write(self, request: Callable[[Transaction], Result]) -> Result:
        """Run one large write. Two large writes never share a transaction, which would take the time of both."""
        async with self._write_lock:
            return await self._writer.acall(request)

    async def make(self, pool: Pool, creator: JobCreator) -> None:
        """Create all jobs, in as many transactions as `pace` requires."""
        creator.pace = self.pace
        while not await self.write(lambda tx: creator.step(pool, tx)):
            pass
