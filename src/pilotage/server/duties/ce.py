"""The cycles of one CE: its pilots are ordered, submitted, released, and watched in listings.

Calls to a batch system may hang for minutes, so each CE has a thread of its own for them.
"""

from __future__ import annotations

import asyncio
import logging
import tempfile
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TypeVar

from pilotage.core.errors import Unreachable
from pilotage.core.ids import PilotId
from pilotage.core.pilots.orders import LeaveOrder
from pilotage.core.policy import Ce
from pilotage.core.policy.director import BATCH_POOL
from pilotage.outside.batch.adapter import BatchAdapter, BatchSubmission
from pilotage.outside.batch.submission import (
    STAMP_PREFIX,
    BatchListing,
    NativeState,
    SubmissionFailed,
    SubmissionRefusal,
    is_same_failure,
)
from pilotage.server.context import Context
from pilotage.server.duties.batch_clients import BatchClients
from pilotage.server.duties.forward_hook import ForwardHook
from pilotage.server.duties.loop import pause
from pilotage.server.duties.row_by_row import POSTGRESQL_AIM, SLICE_AIM, RowByRow
from pilotage.services.director import observing, ordering, submitting
from pilotage.services.director.accounted_ends import unexplained, with_accounted
from pilotage.services.director.ce_director import CeDirector
from pilotage.services.director.forwarding import prepare_forwardings
from pilotage.services.director.listing_comparison import ListingComparison, compare
from pilotage.services.director.local_orders import LocalOrders
from pilotage.services.director.submissions import BatchSteps, SubmissionIntent, SubmissionOrder
from pilotage.services.pilots.orders import CHUNK, order_to_leave
from pilotage.store.engine.connection import Connection
from pilotage.store.tables import absent_pilots, ces, pilot_submissions, pilots
from pilotage.store.tables.ces import LiveTotals
from pilotage.store.writer.transaction import Transaction
from pilotage.wire.pilot import MB

COMPARE = "compare submissions with the listing"
RELEASE = "release pilots"

ACCOUNTING_PAUSE = 600.0
"""Seconds without a question to an accounting that did not answer."""

ACCOUNTING_MARGIN = 3600.0
"""Seconds that the clock of the batch system may be behind."""

Answer = TypeVar("Answer")


class CeDuty:
    """Submits and monitors the pilots of one CE."""

    def __init__(
        self, context: Context, director: CeDirector, batch: BatchAdapter, clients: BatchClients
    ) -> None:
        """`clients`: makes the scripts of its pilots."""
        self._context = context
        self._director = director
        self._batch = batch
        self._clients = clients
        self._thread = ThreadPoolExecutor(1, thread_name_prefix=f"ce-{director.ce}")
        self._hook = ForwardHook(context.monotonic, context.pilots.outside)
        aim = SLICE_AIM if context.writer.in_loop else POSTGRESQL_AIM
        failing = context.duties.failing.of(f"pilots of {director.ce}")
        self._rows = RowByRow(context.writer, failing, context.monotonic, aim)
        self._ask_accounting_from = 0.0
        self._failure = ""
        self.live = 0
        """Live and ordered pilots of a local CE, in the last cycle."""
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
        if isinstance(rule := self._director.rule, LocalOrders):
            rule.free_disk = await asyncio.to_thread(self._free_for_temporary_files)
            await self._watch_processes()
        elif not await self._watch_if_due(ce):
            return
        if ce is not None:
            await self._submit_all(ce)

    async def _watch_if_due(self, ce: Ce | None) -> bool:
        """Take in a listing if it is time for one. False: the batch system gave none."""
        killed = await self._context.quick_read(self._killed_pilots)
        if not observing.is_listing_due(self._director, ce, killed, self._context.clock()):
            return True
        if not await self._watch():
            return False
        observing.plan_listing(self._director, ce, killed, self._context.clock())
        return True

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
        """Cancel every submission of this CE, or only its pilots that have not started.

        Their rows get the order first. Otherwise the next server would take their ends for failures of the CE.
        """
        context, ce = self._context, self._director.ce
        live = await context.quick_read(lambda connection: pilots.live(connection, ce))
        ids = [pilot.id for pilot in live if not (waiting_only and pilot.started is not None)]
        for begin in range(0, len(ids), CHUNK):
            await context.writer.acall(
                partial(
                    order_to_leave,
                    context.pool,
                    ids=ids[begin : begin + CHUNK],
                    asked=LeaveOrder.KILL,
                    actor="server",
                    reason="the server was stopped",
                    now=context.clock(),
                )
            )
        rows = await self._context.quick_read(lambda connection: pilot_submissions.live(connection, ce))
        stamps = [row.stamp for row in rows]
        await self._attempt(lambda: self._batch.cancel(stamps, waiting_only=waiting_only))

    def has_running_pilots(self) -> bool:
        """Whether a pilot of this CE has called home and has not ended, as the store has it, or is a process here."""
        if self._director.local:
            return any(task.state is NativeState.RUNNING for task in self._list().tasks)
        live = pilots.with_batch_jobs(self._context.readers.connection(), self._director.ce)
        return any(pilot.started is not None for pilot in live)

    def _list(self) -> BatchListing:
        """A listing of the batch system, or the answers of this machine about each live pilot."""
        connection, ce = self._context.readers.connection(), self._director.ce
        if self._director.local:
            live = {pilot.stamp: pilot.batch_id for pilot in pilots.with_batch_jobs(connection, ce)}
            self.live = len(live)
            return self._batch.status(live)
        section = self._context.pool.policy.ces.get(ce)
        if section is not None and (obstacle := self._clients.obstacle(section)):
            return BatchListing(failure=obstacle)
        if section is not None and section.batch_options().asks_each:
            live = {pilot.stamp: pilot.batch_id for pilot in pilots.with_batch_jobs(connection, ce)}
            return self._batch.status(live)
        return observing.checked(connection, ce, self._batch.list_pilots())

    async def _watch(self) -> bool:
        """Take in one listing, and make the calls that follow from it. False: there is no complete listing."""
        writer, listed = self._context.writer, self._context.clock()
        listing = await self._call(self._list)
        self._report(listing.failure)
        await writer.acall(partial(self._begin_observation, listing, listed))
        if not listing.complete:
            return False
        comparison = await self._call(lambda: self._compare(listing, listed))
        await self._observe(await self._with_accounted(comparison))
        return True

    def _begin_observation(self, listing: BatchListing, listed: float, tx: Transaction) -> None:
        ordering.expect_node(self._director, self._context.pool, tx)
        observing.begin_observation(self._director, tx, listing, listed)

    async def _watch_processes(self) -> None:
        """Watch a local CE, whose machine always answers."""
        listed = self._context.clock()
        await self._observe(await self._call(lambda: self._compare(self._list(), listed)))

    def _compare(self, listing: BatchListing, listed: float) -> ListingComparison:
        director = self._director
        return compare(self._context.readers.connection(), director.ce, director.unchanged, listing, listed)

    async def _observe(self, comparison: ListingComparison) -> None:
        """Apply a complete listing, a few submissions in each transaction, and make the calls that follow from it."""
        context, director = self._context, self._director
        observations = {observation.row.stamp: observation for observation in comparison.observations}
        parts: dict[str, BatchSteps] = {}

        def observe(tx: Transaction, stamps: Sequence[str]) -> int:
            part = [observations[stamp] for stamp in stamps]
            parts[stamps[0]] = observing.observe_some(
                director, context.pool, tx, comparison, part, context.clock()
            )
            return len(part)

        await self._rows.in_slices(COMPARE, list(observations), observe)
        if not observing.is_noted(director, comparison):
            await context.writer.acall(lambda tx: observing.note_unchanged(director, tx, comparison))
        steps = sum(parts.values(), BatchSteps()).with_cancelled(comparison.cancel)
        for stamp in steps.release:
            await self._rows.alone(RELEASE, stamp, partial(self._release, stamp))
        if steps.cancel:
            await self._attempt(lambda: self._batch.cancel(steps.cancel))
        if steps.cancel_tasks:
            epoch = comparison.listing.epoch
            await self._attempt(lambda: self._batch.cancel_tasks(steps.cancel_tasks, epoch))
        if self._batch.keeps_ended:
            await self._remove_ended(comparison.listing)

    async def _remove_ended(self, listing: BatchListing) -> None:
        """Remove the ended batch jobs of pilots whose ends are stored from a batch system that keeps them."""
        ended = {
            f"{task.stamp}/{task.index}": task.batch_id
            for task in listing.tasks
            if task.state is NativeState.ENDED and task.stamp.startswith(STAMP_PREFIX)
        }
        stored = await self._context.quick_read(
            lambda connection: absent_pilots.ended_among(connection, list(ended))
        )
        if ids := [batch_id for stamp, batch_id in ended.items() if stamp in stored]:
            await self._attempt(lambda: self._batch.cancel_tasks(ids, listing.epoch))

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
        context, director = self._context, self._director
        live = None if director.local else await self._call(self._prepare)
        intents = await context.writer.acall(
            lambda tx: ordering.order_pilots(director, context.pool, tx, context.clock(), live)
        )
        self.live += len(intents)
        started: list[str] = []
        for number, intent in enumerate(intents):
            if number and not director.local and not director.no_room:
                await pause(context, 1 / ce.submit_rate)
            await self._rows.alone("submit pilots", intent.stamp, partial(self._submit, intent, started))

    def _prepare(self) -> LiveTotals:
        """Count the pilots, and make the flags of their orders, beside the writer: both may take long.

        Nobody else submits pilots to this CE meanwhile.
        """
        connection, ce = self._context.readers.connection(), self._director.ce
        prepare_forwardings(self._context.pool, connection, ce, self._context.clock())
        return ces.live_totals(connection, ce)

    async def _submit(self, intent: SubmissionIntent, started: list[str]) -> None:
        """Give one submission to the batch system, and let it start when its id is stored.

        `started`: the batch ids of earlier submissions of this cycle; the new ones are added.
        """
        pool, writer, director = self._context.pool, self._context.writer, self._director
        try:
            submitting.check_room(director)
            flags = await self._flags(intent.order)
            submission = self._submission(intent, flags, started)
            async with self._context.duties.submit_pools.turn(intent.order.pool):
                receipt = await self._call(lambda: self._batch.submit(submission))
        except SubmissionFailed as error:
            self._report_refusal(error)
            failed, now = error, self._context.clock()
            await writer.acall(lambda tx: submitting.failed(director, pool, tx, intent.stamp, failed, now))
            return
        started += receipt.batch_ids
        known = await writer.acall(
            lambda tx: submitting.acknowledged(director, pool, tx, intent.stamp, receipt)
        )
        if self._batch.holds or (known and not director.local):
            await self._release(intent.stamp)
        elif known:
            self._refusal = ""
        else:
            # It was given up meanwhile: the server would refuse its pilots.
            await self._attempt(lambda: self._batch.cancel([intent.stamp]))

    async def _flags(self, order: SubmissionOrder) -> tuple[str, ...]:
        if order.hook is None:
            return order.flags
        ce = self._context.pool.policy.ces.get(self._director.ce)
        return await self._call(lambda: self._hook.flags(ce, order))

    async def _release(self, stamp: str) -> None:
        pool, writer, director = self._context.pool, self._context.writer, self._director
        if not await writer.acall(lambda tx: submitting.releasing(tx, stamp)):
            return
        try:
            if await self._attempt(lambda: self._batch.release([stamp])):
                self._refusal = ""
                await writer.acall(lambda tx: submitting.released(director, pool, tx, stamp))
        except SubmissionFailed as error:
            self._report_refusal(error)
            reason, now = error.reason, self._context.clock()
            if await writer.acall(lambda tx: submitting.refused(director, pool, tx, stamp, reason, now)):
                await self._attempt(lambda: self._batch.cancel([stamp]))

    def _submission(
        self, intent: SubmissionIntent, flags: tuple[str, ...], started: Sequence[str]
    ) -> BatchSubmission:
        order = intent.order
        unwritten = BatchSubmission(
            intent.stamp,
            order.pilots,
            order.shape,
            "",
            order.properties,
            flags=flags,
            neighbours=(*order.neighbours, *started) if self._director.local else (),
        )
        director = self._director
        script = self._clients.script(
            director.ce, intent.secret, unwritten, self._batch, local=director.local
        )
        return replace(unwritten, script=script)

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

    def _free_for_temporary_files(self) -> int:
        """MB free where pilots of this machine work; 0: unknown."""
        try:
            return max(1, self._context.disk.space.usage(Path(tempfile.gettempdir())).free // MB)
        except OSError:
            return 0

    def _report_refusal(self, error: SubmissionFailed) -> None:
        """Log why a submission failed, once for the same reason."""
        if error.refusal is SubmissionRefusal.UNREACHED:
            # The next listing fails for the same reason.
            self._report(error.reason)
            return
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
