"""Makes the spans that end without a result of a pilot: of jobs, lost attempts, elements and requests."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Iterable
from functools import partial
from math import inf

from pilotage.core.jobs.states import CONFIRMED, FINAL, JobState
from pilotage.server.context import Context, Telemetry
from pilotage.server.duties.duty import Duty
from pilotage.server.feed.log_reader import ENTRIES, LOG_ROWS
from pilotage.server.spans.of_jobs import end_spans
from pilotage.server.spans.of_requests import request_spans
from pilotage.store.engine.connection import Connection
from pilotage.store.tables import feed
from pilotage.store.tables.feed import LogPosition, LogRow
from pilotage.telemetry.tracer import Span

log = logging.getLogger(__name__)

PERIOD = 1.0
"""Seconds between two cycles."""
_WITH_PILOT = CONFIRMED | {JobState.MATCHED}


class SpanDuty(Duty):
    """Follows the event logs of a server with `--otlp`. Of several such servers, one sends these spans.

    An event that cannot be read costs its spans only.
    """

    name = lease = "spans"

    def __init__(self, context: Context, telemetry: Telemetry) -> None:
        super().__init__(context)
        self._telemetry = telemetry
        self._read: dict[bool, LogPosition] = {}
        """How far each log is read; the key is whether it is that of requests."""

    def period(self) -> float:
        return PERIOD

    async def begin(self) -> None:
        """Begin with new events: at the start, or since another server had this duty meanwhile."""
        for of_requests in (False, True):
            self._read[of_requests] = await self._context.quick_read(
                partial(feed.newest, of_requests=of_requests)
            )

    async def work(self) -> None:
        """Read the events since the last cycle. On SQLite the next cycle waits for a commit."""
        self.idle_until = inf
        async for row in self._new_rows(of_requests=False):
            if row.new in FINAL or (row.old in CONFIRMED and row.new not in _WITH_PILOT):
                await self._record_jobs(row)
        async for row in self._new_rows(of_requests=True):
            await self._record(partial(request_spans, traces=self._telemetry.traces, row=row))

    async def _new_rows(self, *, of_requests: bool) -> AsyncIterator[LogRow]:
        more = True
        while more and not self._context.stop.is_set():
            after = self._read[of_requests]
            rows = await self._context.quick_read(
                partial(feed.read_log, after=after, most=LOG_ROWS, of_requests=of_requests)
            )
            more = len(rows) == LOG_ROWS
            for row in rows:
                if row.log > after:
                    self._read[of_requests] = row.log
                    yield row

    async def _record_jobs(self, row: LogRow) -> None:
        """Record the spans that end with an event of jobs, which may be very many."""
        epochs = dict(feed.entries_of(row))
        jobs = list(epochs)
        for start in range(0, len(jobs), ENTRIES):
            some = jobs[start : start + ENTRIES]
            traced = await self._context.quick_read(partial(self._telemetry.traces.of_jobs, jobs=some))
            for job in traced:
                await self._record(partial(end_spans, job=job, epoch=epochs[job.facts.id], row=row))
            await asyncio.sleep(0)

    async def _record(self, make: Callable[[Connection], Iterable[Span]]) -> None:
        try:
            spans = await self._context.quick_read(lambda connection: list(make(connection)))
        except Exception:
            log.debug("spans are lost", exc_info=True)
            self._telemetry.collector.drop(1)
            return
        for span in spans:
            self._telemetry.tracer.record(span)
        await asyncio.sleep(0)
