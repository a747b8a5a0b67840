"""The periodic work of a server: pilots of the local CE, queues without jobs."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from math import inf
from pathlib import Path

from pilotage.core.errors import Overloaded, Unreachable
from pilotage.core.ids import PilotId, SubmissionId
from pilotage.core.pilots.handover import Action, Seen
from pilotage.core.shares.correction import Corrections
from pilotage.outside.batch.local import LocalBatch, Sighting
from pilotage.outside.batch.script import PilotOrder, render
from pilotage.server.context import Context
from pilotage.server.disk_space import Troubles
from pilotage.server.duties.duty_leases import DutyLeases
from pilotage.server.duties.row_by_row import each
from pilotage.services.director.local import LocalDirector, Ordered
from pilotage.services.pool.index_loading import Counts, apply_counts, count_waiting, enter, load_some
from pilotage.services.shares import corrections
from pilotage.services.submission import accept as submission_service
from pilotage.services.submission import chunked
from pilotage.services.submission.job_creation import JobCreator
from pilotage.store.cluster.changes import TransactionSnapshot
from pilotage.store.engine.connection import Connection, ServerEvicted
from pilotage.store.tables import pilots, submissions, usage
from pilotage.store.tables.pilots import Watched
from pilotage.store.writer.transaction import Transaction

log = logging.getLogger(__name__)

LEASE_PERIOD = 1.0
DIRECTOR_PERIOD = 1.0
IDLE_DIRECTOR_PERIOD = 5.0
PRIORITY_PERIOD = 1.0
NEWCOMERS_PERIOD = 10.0
QUEUE_PERIOD = 3600.0
QUEUE_KEPT = 86400.0
LAST_WORDS = 500
NEVER_BEGAN = "its process was never started"
ENTERED = 200
"""So many queues are made known to the index in one transaction."""


async def every(
    context: Context,
    period: Callable[[], float],
    duty: Callable[[], Awaitable[None]],
    wake: asyncio.Event | None = None,
) -> None:
    """Carry `duty` out once per period, or when woken, until the server stops. What is wrong with it is logged once."""
    troubles = Troubles(duty.__qualname__, context.space)
    while not context.stop.is_set():
        try:
            await duty()
        except ServerEvicted as error:
            context.ended_by = error
            context.stop.set()
        except Exception as error:
            troubles.met(error)
        else:
            troubles.over()
        await _pause(context, period(), wake)


async def _pause(context: Context, seconds: float, wake: asyncio.Event | None) -> None:
    waits = [asyncio.ensure_future(context.stop.wait())]
    if wake is not None:
        waits.append(asyncio.ensure_future(wake.wait()))
    await asyncio.wait(waits, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
    for wait in waits:
        wait.cancel()
    if wake is not None:
        wake.clear()


async def until_stopped(context: Context, work: Coroutine[None, None, None]) -> None:
    """Have something go on until the server stops, which does not depend on it."""
    task, stop = asyncio.create_task(work), asyncio.create_task(context.stop.wait())
    try:
        await asyncio.wait([task, stop], return_when=asyncio.FIRST_COMPLETED)
    finally:
        stop.cancel()
        task.cancel()
        [ended] = await asyncio.gather(task, return_exceptions=True)
        if isinstance(ended, Exception):
            log.error("%s failed", work, exc_info=ended)


class QueueDuty:
    """Rows of queues that have been without jobs for a day go, by a cycle, never by the last job.

    Submissions to which nothing has come for as long are closed.
    """

    def __init__(self, context: Context) -> None:
        self._context = context

    async def cycle(self) -> None:
        pool, writer, clock = self._context.pool, self._context.writer, self._context.clock
        await writer.acall(lambda tx: submissions.mark_empty_queues(tx.connection, clock()))
        await writer.acall(lambda tx: self._forget(tx, clock() - QUEUE_KEPT))
        while left := await writer.acall(lambda tx: chunked.close_left_open(pool, tx, clock())):
            for one in left:
                log.warning("submission %d was left open: closed with %d jobs", one.id, one.count)

    def _forget(self, tx: Transaction, before: float) -> None:
        gone = submissions.forget_queues(tx.connection, before)
        if gone:
            self._context.pool.forget_queues(tx, gone)
            self._context.pool.tell(tx, queues=gone)


class PriorityDuty:
    """Takes up the priorities of what has changed, a few queues in each turn of the writer.

    Whoever begins to wait is looked at by the correctors soon, not only after their period.
    """

    def __init__(self, context: Context) -> None:
        self._context = context
        self._welcomed = 0.0

    async def cycle(self) -> None:
        pool, writer = self._context.pool, self._context.writer
        priorities, now = pool.index.priorities, self._context.clock()
        if priorities.newcomers and not 0 <= now - self._welcomed < NEWCOMERS_PERIOD:
            priorities.newcomers, self._welcomed = False, now
            self._context.wake_shares.set()
        if pool.settling is None and not priorities.unsettled:
            return
        while not await writer.acall(lambda _: corrections.apply_priorities(pool)):
            pass


class ShareDuty:
    """Charges what was used, and draws the share corrections from it."""

    def __init__(self, context: Context) -> None:
        self._context = context

    def period(self) -> float:
        return self._context.pool.policy.correction.period

    async def cycle(self) -> None:
        pool, writer, book = self._context.pool, self._context.writer, self._context.book
        book.history = pool.policy.accounting.history
        charged = await asyncio.to_thread(lambda: book.charge(self._context.readers.connection()))
        for part in book.saving(charged):
            await writer.acall(lambda tx, part=part: corrections.save_use(tx, part))  # type: ignore[misc]
        who = await writer.acall(lambda _: corrections.waiting(pool))
        found = await asyncio.to_thread(self._corrections, who)
        await writer.acall(lambda tx: corrections.apply_use(pool, tx, found, charged.as_of))

    def _corrections(self, who: corrections.WaitingEntities) -> Corrections:
        last, memory = usage.memory(self._context.readers.connection())
        return corrections.corrections(self._context.book, who, last, memory)


class LedgerDuty:
    """Where another server draws the corrections: has the ledger that reports are made of follow the store."""

    def __init__(self, context: Context, posts: DutyLeases) -> None:
        self._context = context
        self._posts = posts

    async def cycle(self) -> None:
        context = self._context
        if not self._posts.holds("shares"):
            context.book.history = context.pool.policy.accounting.history
            await asyncio.to_thread(lambda: context.book.charge(context.readers.connection()))


class LocalCeDuty:
    """Starts and watches the pilots of one local CE."""

    def __init__(
        self, context: Context, director: LocalDirector, batch: LocalBatch, logs: Path, python: str
    ) -> None:
        self._context = context
        self._director = director
        self._batch = batch
        self._logs = logs
        self._python = python
        self._live = 0

    def period(self) -> float:
        return DIRECTOR_PERIOD if self._live else IDLE_DIRECTOR_PERIOD

    async def cycle(self) -> None:
        pool, writer, clock = self._context.pool, self._context.writer, self._context.clock
        await self._watch()
        ordered = await writer.acall(lambda tx: self._director.order(pool, tx, clock(), self._batch.place))
        live = await self._context.glance(self._live_pilots)
        neighbours = [pilot.batch_id for pilot in live if pilot.batch_id]
        for one in ordered:
            if batch_id := await self._start(one, neighbours):
                neighbours.append(batch_id)
        self._live = len(live) + len(ordered)

    async def cancel_all(self) -> None:
        """Ask every pilot to give its jobs back and leave."""
        live = await self._context.glance(self._live_pilots)
        sightings = await asyncio.to_thread(self._sightings, live)
        await asyncio.to_thread(self._batch.cancel, [sighting.batch_id for sighting in sightings.values()])

    def anybody(self) -> bool:
        """Whether a pilot of this CE still runs."""
        live = self._live_pilots(self._context.readers.connection())
        return any(sighting.seen is Seen.SEEN for sighting in self._sightings(live).values())

    def _sightings(self, pilots_: Sequence[Watched]) -> dict[str, Sighting]:
        return self._batch.status({pilot.stamp: pilot.batch_id for pilot in pilots_})

    async def _watch(self) -> None:
        """Carry out what the hand-over's table says of each live pilot."""
        pool, writer, clock = self._context.pool, self._context.writer, self._context.clock
        live = await self._context.glance(self._live_pilots)
        listed = clock()
        sightings = await asyncio.to_thread(self._sightings, live)
        for pilot in live:
            sighting = sightings[pilot.stamp]
            action = self._director.action(pilot, sighting.seen)
            if action is Action.LOSE:
                words = await asyncio.to_thread(self._last_words, pilot)
                await writer.acall(
                    lambda tx, pilot=pilot, words=words: self._director.gone(  # type: ignore[misc]
                        pool, tx, pilot, words, clock(), listed
                    )
                )
            elif action is Action.ABORT:
                await writer.acall(
                    lambda tx, pilot=pilot: self._director.aborted(pool, tx, pilot.id, NEVER_BEGAN, clock())  # type: ignore[misc]
                )
            elif sighting.seen is Seen.SEEN and sighting.batch_id != pilot.batch_id:
                log.info("pilot %d is batch job %s, found by its stamp", pilot.id, sighting.batch_id)
                await self._record(pilot.id, sighting.batch_id)

    def _live_pilots(self, connection: Connection) -> list[Watched]:
        return pilots.watched(connection, self._director.ce)

    async def _start(self, ordered: Ordered, neighbours: list[str]) -> str:
        """Start one pilot and record its batch id; "" if it could not be started."""
        pool, writer, clock = self._context.pool, self._context.writer, self._context.clock
        try:
            batch_id = await asyncio.to_thread(self._submit, ordered, neighbours)
        except Unreachable as error:
            log.warning("%s", error)
            reason = str(error)
            await writer.acall(lambda tx: self._director.aborted(pool, tx, ordered.pilot, reason, clock()))
            return ""
        await self._record(ordered.pilot, batch_id)
        return batch_id

    async def _record(self, pilot: PilotId, batch_id: str) -> None:
        pool, writer = self._context.pool, self._context.writer
        if not await writer.acall(lambda tx: self._director.started(pool, tx, pilot, batch_id)):
            # Its intent was given up meanwhile: it would be refused.
            await asyncio.to_thread(self._batch.cancel, [batch_id])

    def _submit(self, ordered: Ordered, neighbours: list[str]) -> str:
        order = PilotOrder(
            server=self._context.pilot_url,
            secret=ordered.secret,
            index=ordered.index,
            processors=ordered.processors,
            memory=ordered.memory,
            stamp=ordered.stamp,
            python=self._python,
        )
        script = render(self._context.program, order)
        log_file = self._log_of(ordered.stamp)
        return self._batch.submit(script, ordered.stamp, log_file, ordered.processors, neighbours)

    def _log_of(self, stamp: str) -> Path:
        return self._logs / f"{stamp}.log"

    def _last_words(self, pilot: Watched) -> str:
        try:
            text = self._log_of(pilot.stamp).read_text(errors="replace").strip()
        except FileNotFoundError:
            return ""
        return text[-LAST_WORDS:].replace("\n", " | ")


class LocalCesDuty:
    """All local CEs of the policy in force; those of a new policy are taken up in the next cycle.

    A CE that has gone from the policy gets no more pilots; those that it has are watched to their end.
    """

    def __init__(self, context: Context, make: Callable[[str], LocalCeDuty]) -> None:
        self._context = context
        self._make = make
        self._duties: dict[str, LocalCeDuty] = {}

    def period(self) -> float:
        return min((duty.period() for duty in self._duties.values()), default=IDLE_DIRECTOR_PERIOD)

    async def cycle(self) -> None:
        for name, ce in self._context.pool.policy.ces.items():
            if ce.type == "local" and name not in self._duties:
                self._duties[name] = self._make(name)
        await each([duty.cycle for duty in self._duties.values()])

    async def cancel_all(self) -> None:
        for duty in self._duties.values():
            await duty.cancel_all()

    def anybody(self) -> bool:
        return any(duty.anybody() for duty in self._duties.values())


async def fill_index(context: Context) -> None:
    """Count the waiting jobs while pilots and people are served; they are given out when that is done."""
    begun = context.clock()
    if context.pool.company is not None:
        await _count_beside(context)
    else:
        while not await context.writer.acall(lambda tx: load_some(context.pool, tx)):
            if context.stop.is_set():
                return
    log.info("counted the waiting jobs in %.1f s", context.clock() - begun)


async def _count_beside(context: Context) -> None:
    """By a reader, for as long as the database takes: the writer has only to take up what was found."""
    while not context.stop.is_set():
        try:
            found = await asyncio.to_thread(lambda: count_waiting(context.readers.connection()))
            await _take_up(context, *found)
        except Overloaded as error:
            log.warning("the waiting jobs could not be counted: %s", error)
            await _pause(context, LEASE_PERIOD, None)
        else:
            return


async def _take_up(context: Context, seen: TransactionSnapshot, counts: Counts) -> None:
    """The queues some at a time, which takes most of the time, then their jobs at once."""
    pool, writer, queues = context.pool, context.writer, list(counts)
    for first in range(0, len(queues), ENTERED):
        part = queues[first : first + ENTERED]
        await writer.acall(lambda tx, part=part: [enter(pool, tx, queue) for queue in part])  # type: ignore[misc]
    await writer.acall(lambda tx: apply_counts(pool, tx, seen, counts))


async def forget_unaccepted(context: Context, untouched_since: float = inf) -> None:
    """What the last server had stored in part of a submission goes: nobody was told of it.

    `untouched_since`: of submissions that nobody has touched since then.
    """
    for submission in await context.writer.acall(
        lambda tx: submissions.staged(tx.connection, untouched_since)
    ):
        await forget_staged(context, submission)


async def finish_submissions(context: Context, untouched_since: float = inf) -> None:
    """Make the jobs that were accepted before the last server ended. `untouched_since` as of `forget_unaccepted`."""
    for submission in await context.writer.acall(
        lambda tx: submissions.unfinished(tx.connection, untouched_since)
    ):
        await context.bulk.make(context.pool, JobCreator(submission))
        log.info("made the remaining jobs of submission %d", submission)


async def forget_staged(context: Context, submission: SubmissionId) -> None:
    """Take back a submission that was stored in part; its client was told nothing."""
    while not await context.bulk.write(lambda tx: submission_service.forget_staged(tx, submission)):
        pass
