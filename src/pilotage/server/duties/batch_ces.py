"""The duty of CEs that are batch systems: it submits pilots, releases them, and watches them in listings.

Calls to a batch system may hang for minutes, so each CE has a thread of its own for them.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TypeVar

from pilotage.core.errors import Unreachable
from pilotage.core.ids import PilotId
from pilotage.core.policy import Ce
from pilotage.core.policy.director import BATCH_POOL
from pilotage.outside.batch.adapter import BatchAdapter, BatchSubmission, Shape
from pilotage.outside.batch.script import PilotSettings, render
from pilotage.outside.batch.submission import (
    BatchListing,
    SubmissionFailed,
    SubmissionRefusal,
    is_same_failure,
)
from pilotage.server.context import Context, proxy_of
from pilotage.server.duties.duty import Duty
from pilotage.server.duties.forward_hook import ForwardHook
from pilotage.server.duties.loop import pause
from pilotage.server.duties.row_by_row import POSTGRESQL_AIM, SLICE_AIM, RowByRow
from pilotage.services.director.accounted_ends import unexplained, with_accounted
from pilotage.services.director.batch import BatchDirector
from pilotage.services.director.forwarding import prepare_forwardings
from pilotage.services.director.listing_comparison import ListingComparison, compare
from pilotage.services.director.submissions import BatchSteps, SubmissionIntent
from pilotage.store.engine.connection import Connection
from pilotage.store.tables import ces, pilot_submissions, pilots
from pilotage.store.writer.transaction import Transaction

BATCH_PERIOD = 2.0
"""Seconds between two looks at the waiting jobs. Listings are rarer: `ces.NAME.listing_period`."""

KILL_RECHECK = 5.0
"""Seconds from the cancellation of killed pilots to the next listing, if listings are rarer."""

COMPARE = "compare submissions with the listing"
RELEASE = "release pilots"

ACCOUNTING_PAUSE = 600.0
"""Seconds without a question to an accounting that did not answer."""

ACCOUNTING_MARGIN = 3600.0
"""Seconds that the clock of the batch system may be behind."""

Answer = TypeVar("Answer")


class BatchCeDuty:
    """Submits and monitors the pilots of one CE."""

    def __init__(self, context: Context, director: BatchDirector, batch: BatchAdapter) -> None:
        self._context = context
        self._director = director
        self._batch = batch
        self._thread = ThreadPoolExecutor(1, thread_name_prefix=f"ce-{director.ce}")
        self._hook = ForwardHook()
        self._next_listing = 0.0
        aim = SLICE_AIM if context.writer.in_loop else POSTGRESQL_AIM
        self._rows = RowByRow(context.writer, context.duties.failing.of(f"pilots of {director.ce}"), aim)
        self._killed: set[PilotId] = set()
        """Pilots whose kill the last listing has taken in."""
        self._ask_accounting_from = 0.0
        self._failure = ""
        self._full = ""
        """Why the batch system has no room for one further pilot, in this cycle; empty: it may have room."""
        self._refusal = ""
        """Why the last submission failed; empty: it was accepted."""

    async def cycle(self) -> None:
        self._rows.begin_cycle()
        for step in (COMPARE, RELEASE):
            # Only a cycle with a listing looks at the submissions.
            self._rows.leave_out(step)
        await self._serve()
        self._rows.end_cycle()

    async def _serve(self) -> None:
        ce = self._context.pool.policy.ces.get(self._director.ce)
        now = self._context.clock()
        due = self._next_listing
        # A clock that stepped back ends the wait.
        period = ce.listing_period if ce is not None else 60.0
        killed = await self._context.quick_read(self._killed_pilots)
        if now >= due or due - now > period or killed - self._killed:
            if not await self._watch():
                return
            # Look again soon after a kill: a pilot that waited has ended by then.
            again = min(period, KILL_RECHECK) if killed - self._killed else period
            self._killed = killed
            self._next_listing = self._context.clock() + again
        if ce is not None:
            await self._submit_all(ce)

    def _killed_pilots(self, connection: Connection) -> set[PilotId]:
        return set(pilots.killed(connection, self._director.ce))

    @property
    def _log(self) -> logging.Logger:
        """The logger has the name of the submit pool, as in DIRAC's document."""
        ce = self._context.pool.policy.ces.get(self._director.ce)
        return logging.getLogger(f"pilotage.director.{ce.submit_pool if ce else BATCH_POOL}")

    def close(self) -> None:
        """Kill a command or hook that still runs: a submission in doubt is looked up by the next director."""
        self._batch.close()
        self._hook.close()
        self._thread.shutdown(wait=False, cancel_futures=True)

    async def cancel_all(self, *, waiting_only: bool) -> None:
        """Cancel every submission of this CE, or only its pilots that have not started."""
        ce = self._director.ce
        rows = await self._context.quick_read(lambda connection: pilot_submissions.live(connection, ce))
        stamps = [row.stamp for row in rows]
        await self._attempt(lambda: self._batch.cancel(stamps, waiting_only=waiting_only))

    def has_running_pilots(self) -> bool:
        """Whether a pilot of this CE has called home and has not ended, as the store has it."""
        live = pilots.with_batch_jobs(self._context.readers.connection(), self._director.ce)
        return any(pilot.started is not None for pilot in live)

    async def _watch(self) -> bool:
        """Take in one listing, and make the calls that follow from it. False: there is no complete listing."""
        writer, clock = self._context.writer, self._context.clock
        listed = clock()
        listed_now = await self._call(self._batch.list_pilots)
        listing = await self._context.quick_read(
            lambda connection: self._director.checked(connection, listed_now)
        )
        self._report(listing.failure)
        await writer.acall(lambda tx: self._director.begin_observation(tx, listing, listed))
        if not listing.complete:
            return False
        steps = await self._observe(listing, listed)
        for stamp in steps.release:
            await self._rows.alone(RELEASE, stamp, partial(self._release, stamp))
        if steps.cancel:
            await self._attempt(lambda: self._batch.cancel(steps.cancel))
        if steps.cancel_tasks:
            await self._attempt(lambda: self._batch.cancel_tasks(steps.cancel_tasks, listing.epoch))
        return True

    async def _observe(self, listing: BatchListing, listed: float) -> BatchSteps:
        """Apply a complete listing, a few submissions in each transaction; the calls that follow from it."""
        context, director = self._context, self._director
        comparison = await self._call(
            lambda: compare(context.readers.connection(), director.ce, director.unchanged, listing, listed)
        )
        comparison = await self._with_accounted(comparison)
        observations = {observation.row.stamp: observation for observation in comparison.observations}
        steps: dict[str, BatchSteps] = {}

        def observe(tx: Transaction, stamps: Sequence[str]) -> int:
            part = [observations[stamp] for stamp in stamps]
            steps[stamps[0]] = director.observe_some(context.pool, tx, comparison, part, context.clock())
            return len(part)

        await self._rows.in_slices(COMPARE, list(observations), observe)
        await context.writer.acall(lambda tx: director.note_unchanged(tx, comparison))
        return sum(steps.values(), BatchSteps()).with_cancelled(comparison.cancel)

    async def _with_accounted(self, comparison: ListingComparison) -> ListingComparison:
        """Ask the accounting about batch jobs that ended or are missing. Without its answer the listing decides."""
        submitted, now = unexplained(comparison), self._context.clock()
        if not submitted or now < self._ask_accounting_from <= now + ACCOUNTING_PAUSE:
            return comparison
        since = now - min(submitted.values()) + ACCOUNTING_MARGIN
        try:
            accounted = await self._call(lambda: self._batch.list_accounted(submitted.keys(), since))
        except Unreachable as error:
            self._ask_accounting_from = now + ACCOUNTING_PAUSE
            self._log.warning("CE %s: the accounting does not answer: %s", self._director.ce, error)
            return comparison
        return with_accounted(comparison, accounted)

    async def _submit_all(self, ce: Ce) -> None:
        pool, writer, clock = self._context.pool, self._context.writer, self._context.clock
        # To count many pilots takes the database long. Nobody else submits pilots to this CE meanwhile.
        live = await self._call(
            lambda: ces.live_totals(self._context.readers.connection(), self._director.ce)
        )
        await self._call(
            lambda: prepare_forwardings(pool, self._context.readers.connection(), self._director.ce, clock())
        )
        intents = await writer.acall(lambda tx: self._director.order(pool, tx, clock(), live))
        self._full = ""
        for number, intent in enumerate(intents):
            if self._full:
                await self._note_full(intent, self._full)
                continue
            if number:
                await pause(self._context, 1 / ce.submit_rate)
            await self._rows.alone("submit pilots", intent.stamp, partial(self._submit, intent))

    async def _note_full(self, intent: SubmissionIntent, reason: str) -> None:
        """Give up a submission for which the batch system has no room."""
        pool, now = self._context.pool, self._context.clock()
        await self._context.writer.acall(lambda tx: self._director.full(pool, tx, intent.stamp, reason, now))
        self._full = reason if intent.pilots == 1 else self._full

    async def _submit(self, intent: SubmissionIntent) -> None:
        """Give one submission to the batch system, held, and release it when its id is stored."""
        pool, writer, clock = self._context.pool, self._context.writer, self._context.clock
        shape = Shape(intent.processors, intent.memory, intent.wall)
        try:
            flags = await self._call(lambda: self._hook.flags(pool.policy.ces.get(self._director.ce), intent))
            submission = BatchSubmission(
                intent.stamp, intent.pilots, shape, self._script(intent), intent.properties, flags=flags
            )
            async with self._context.duties.submit_pools.turn(intent.pool):
                receipt = await self._call(lambda: self._batch.submit(submission))
        except SubmissionFailed as error:
            reason = error.reason
            self._report_refusal(error)
            if error.refusal is SubmissionRefusal.IN_DOUBT:
                await writer.acall(lambda tx: self._director.in_doubt(tx, intent.stamp, reason))
            elif error.refusal is SubmissionRefusal.FULL:
                await self._note_full(intent, reason)
            else:
                await writer.acall(lambda tx: self._director.refused(pool, tx, intent.stamp, reason, clock()))
            return
        await writer.acall(lambda tx: self._director.acknowledged(pool, tx, intent.stamp, receipt))
        await self._release(intent.stamp)

    async def _release(self, stamp: str) -> None:
        pool, writer = self._context.pool, self._context.writer
        if not await writer.acall(lambda tx: self._director.releasing(tx, stamp)):
            return
        try:
            if await self._attempt(lambda: self._batch.release([stamp])):
                self._refusal = ""
                await writer.acall(lambda tx: self._director.released(pool, tx, stamp))
        except SubmissionFailed as error:
            self._report_refusal(error)
            reason, now = error.reason, self._context.clock()
            if await writer.acall(lambda tx: self._director.refused(pool, tx, stamp, reason, now)):
                await self._attempt(lambda: self._batch.cancel([stamp]))

    def _script(self, intent: SubmissionIntent) -> str:
        settings = PilotSettings(
            servers=self._context.address.pilot_urls,
            fingerprints=self._context.address.pool_fingerprints,
            ca_file=self._context.address.ca_file,
            proxy=proxy_of(self._context, self._director.ce),
            secret=intent.secret,
            index=0,
            processors=intent.processors,
            memory=intent.memory,
            stamp=intent.stamp,
            index_variable=self._batch.index_variable,
        )
        return render(self._context.pilots.program, settings)

    async def _attempt(self, call: Callable[[], None]) -> bool:
        """Make a call that a later cycle makes again if it fails."""
        try:
            await self._call(call)
        except Unreachable as error:
            self._report(str(error))
            return False
        return True

    async def _call(self, call: Callable[[], Answer]) -> Answer:
        return await asyncio.get_running_loop().run_in_executor(self._thread, call)

    def _report_refusal(self, error: SubmissionFailed) -> None:
        """Log why a submission failed, once for the same reason."""
        text = f"submission {error.refusal}: {error.reason}"
        if not is_same_failure(text, self._refusal):
            self._log.warning("CE %s: %s", self._director.ce, text)
            self._refusal = text

    def _report(self, failure: str) -> None:
        """Log a failure once, and its end."""
        if not is_same_failure(failure, self._failure):
            if failure:
                self._log.warning("CE %s: %s", self._director.ce, failure)
            else:
                self._log.info("CE %s answers again", self._director.ce)
            self._failure = failure


class BatchCesDuty(Duty):
    """All CEs of the policy in force that are batch systems.

    Each CE has a task of its own, so that a batch system that hangs holds up no other. A CE that has gone from the
    policy gets no more pilots; its pilots are watched to their end.
    """

    name = lease = "batch pilots"

    def __init__(self, context: Context, make: Callable[[str], BatchCeDuty]) -> None:
        super().__init__(context)
        self._make = make
        self._duties: dict[str, tuple[Ce, BatchCeDuty]] = {}
        self._cycles: dict[str, asyncio.Task[None]] = {}

    def period(self) -> float:
        return BATCH_PERIOD

    async def work(self) -> None:
        """Begin the next cycle of each CE whose last one has ended."""
        for name, ce in self._context.pool.policy.ces.items():
            known = self._duties.get(name)
            if ce.type != "local" and (known is None or known[0] != ce) and not self._is_busy(name):
                if known is not None:
                    known[1].close()
                self._duties[name] = ce, self._make(name)
        # A cycle that is under way, or has not ended once, tells nothing yet.
        self._rows.leave_out("serve CEs")
        for name, (_, duty) in self._duties.items():
            if self._is_busy(name):
                continue
            ended, self._cycles[name] = self._cycles.get(name), asyncio.create_task(duty.cycle())
            if ended is not None:
                await self._rows.alone("serve CEs", name, partial(_end_of, ended))

    def _is_busy(self, name: str) -> bool:
        return name in self._cycles and not self._cycles[name].done()

    async def cancel_all(self, *, waiting_only: bool) -> None:
        """Cancel every submission of every CE, or only the pilots that have not started."""
        for _, duty in self._duties.values():
            await duty.cancel_all(waiting_only=waiting_only)

    def has_running_pilots(self) -> bool:
        """Whether a pilot of any of these CEs has called home and has not ended."""
        return any(duty.has_running_pilots() for _, duty in self._duties.values())

    async def close(self) -> None:
        """End all cycles and the commands that they wait for. A submission under way is in doubt then."""
        for cycle in self._cycles.values():
            cycle.cancel()
        for _, duty in self._duties.values():
            duty.close()
        await asyncio.gather(*self._cycles.values(), return_exceptions=True)


async def _end_of(cycle: asyncio.Task[None]) -> None:
    await cycle
