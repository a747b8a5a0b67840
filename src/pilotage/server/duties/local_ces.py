"""The duty of local CEs: starts and monitors pilots on this machine."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial

from pilotage.core.errors import Unreachable
from pilotage.core.ids import PilotId
from pilotage.core.pilots.handover import Action, Seen
from pilotage.core.pilots.orders import LeaveOrder
from pilotage.outside.batch.adapter import BatchAdapter, BatchSubmission, Shape, split_stamp, submissions_of
from pilotage.outside.batch.properties import all_properties, write_properties
from pilotage.outside.batch.script import PilotSettings, render
from pilotage.outside.batch.submission import BatchListing, SubmissionFailed, SubmissionRefusal
from pilotage.server.context import Context, proxy_of
from pilotage.server.duties.duty import Duty
from pilotage.server.duties.row_by_row import RowByRow
from pilotage.services.director.local import LocalDirector, PilotIntent
from pilotage.store.engine.connection import Connection
from pilotage.store.tables import pilots
from pilotage.store.tables.pilots import SubmittedPilot

log = logging.getLogger(__name__)

DIRECTOR_PERIOD = 1.0
IDLE_DIRECTOR_PERIOD = 5.0
MAX_LAST_OUTPUT = 500
NEVER_BEGAN = "its process was never started"


class LocalCeDuty:
    """Starts and monitors the pilots of one local CE."""

    def __init__(self, context: Context, director: LocalDirector, batch: BatchAdapter, python: str) -> None:
        self._context = context
        self._director = director
        self._batch = batch
        self._python = python
        self._rows = RowByRow(context.writer, context.duties.failing.of(f"pilots of {director.ce}"))
        self._live = 0
        self._signalled: set[PilotId] = set()
        """Killed pilots that have had their signal."""

    def period(self) -> float:
        return DIRECTOR_PERIOD if self._live else IDLE_DIRECTOR_PERIOD

    async def cycle(self) -> None:
        pool, writer, clock = self._context.pool, self._context.writer, self._context.clock
        self._rows.begin_cycle()
        await self._watch()
        ordered = await writer.acall(lambda tx: self._director.order(pool, tx, clock(), self._batch.place))
        live = await self._context.quick_read(self._live_pilots)
        neighbours = [pilot.batch_id for pilot in live if pilot.batch_id]
        for intent in ordered:
            started = await self._rows.alone(
                "start pilots",
                intent.pilot,
                partial(self._start, intent, neighbours),
            )
            neighbours += started or ()
        self._live = len(live) + len(ordered)
        self._rows.end_cycle()

    async def cancel_all(self) -> None:
        """Ask every pilot to release its jobs and exit."""
        live = await self._context.quick_read(self._live_pilots)
        listing = await asyncio.to_thread(self._list, live)
        ids = [task.batch_id for task in listing.tasks]
        await asyncio.to_thread(self._batch.cancel_tasks, ids, listing.epoch)

    def has_running_pilots(self) -> bool:
        """Whether any pilot of this CE still runs."""
        live = self._live_pilots(self._context.readers.connection())
        listing = self._list(live)
        return any(listing.find(*split_stamp(pilot.stamp))[0] is Seen.SEEN for pilot in live)

    def _list(self, live: Sequence[SubmittedPilot]) -> BatchListing:
        return self._batch.status({pilot.stamp: pilot.batch_id for pilot in live})

    async def _watch(self) -> None:
        """Apply the action of the hand-over table to each live pilot."""
        live = await self._context.quick_read(self._live_pilots)
        listed = self._context.clock()
        listing = await asyncio.to_thread(self._list, live)
        await self._cancel_killed(live, listing)
        for pilot in live:
            await self._rows.alone(
                "watch pilots",
                pilot.id,
                partial(self._act, pilot, listing, listed),
            )

    async def _act(self, pilot: SubmittedPilot, listing: BatchListing, listed: float) -> None:
        pool, writer, clock = self._context.pool, self._context.writer, self._context.clock
        seen, batch_id = listing.find(*split_stamp(pilot.stamp))
        action = self._director.action(pilot, seen, holds=self._batch.holds)
        if action is Action.LOSE:
            output = await asyncio.to_thread(self._last_output, pilot)
            await writer.acall(lambda tx: self._director.record_end(pool, tx, pilot, output, clock(), listed))
        elif action is Action.ABORT:
            await writer.acall(lambda tx: self._director.abort(pool, tx, pilot.id, NEVER_BEGAN, clock()))
        elif seen is Seen.SEEN and batch_id not in ("", pilot.batch_id):
            log.info("pilot %d is batch job %s, found by its stamp", pilot.id, batch_id)
            await self._record(pilot.id, pilot.stamp, batch_id)

    async def _cancel_killed(self, live: Sequence[SubmittedPilot], listing: BatchListing) -> None:
        """Signal each pilot that an administrator has killed, once: a second signal would give it more time."""
        killed = {
            pilot.id: listing.find(*split_stamp(pilot.stamp))
            for pilot in live
            if pilot.leave == LeaveOrder.KILL
        }
        batch_ids = [
            batch_id
            for pilot, (seen, batch_id) in killed.items()
            if seen is Seen.SEEN and pilot not in self._signalled
        ]
        self._signalled = set(killed)
        if batch_ids:
            await asyncio.to_thread(self._batch.cancel_tasks, batch_ids, listing.epoch)

    def _live_pilots(self, connection: Connection) -> list[SubmittedPilot]:
        return pilots.with_batch_jobs(connection, self._director.ce)

    async def _start(self, intent: PilotIntent, neighbours: Sequence[str]) -> tuple[str, ...]:
        """Start one pilot and record its batch id, which is returned."""
        pool, writer, clock = self._context.pool, self._context.writer, self._context.clock
        submission = self._submission(intent, neighbours)
        try:
            receipt = await asyncio.to_thread(self._batch.submit, submission)
        except SubmissionFailed as error:
            log.warning("%s", error.reason)
            if error.refusal is not SubmissionRefusal.IN_DOUBT:
                reason = error.reason
                await writer.acall(lambda tx: self._director.abort(pool, tx, intent.pilot, reason, clock()))
            return ()
        await self._record(intent.pilot, intent.stamp, receipt.array)
        return receipt.batch_ids

    async def _record(self, pilot: PilotId, stamp: str, batch_id: str) -> None:
        pool, writer = self._context.pool, self._context.writer
        if not await writer.acall(lambda tx: self._director.record_start(pool, tx, pilot, batch_id)):
            # The intent was abandoned meanwhile: the server would refuse this pilot.
            with suppress(Unreachable):
                await asyncio.to_thread(self._batch.cancel, submissions_of([stamp]))

    def _submission(self, intent: PilotIntent, neighbours: Sequence[str]) -> BatchSubmission:
        shape = Shape(intent.processors, intent.memory)
        properties = {"owner": intent.owner} if intent.owner else {}
        unwritten = BatchSubmission(intent.stamp, 1, shape, "", properties, beside=tuple(neighbours))
        return replace(unwritten, script=self._script(intent, unwritten))

    def _script(self, intent: PilotIntent, submission: BatchSubmission) -> str:
        settings = PilotSettings(
            servers=self._context.address.pilot_urls,
            fingerprints=self._context.address.pool_fingerprints,
            ca_file=self._context.address.ca_file,
            proxy=proxy_of(self._context, self._director.ce),
            secret=intent.secret,
            index=intent.index,
            index_variable=self._batch.index_variable,
            properties=write_properties(all_properties(submission)),
            processors=intent.processors,
            memory=intent.memory,
            stamp=intent.stamp,
            python=self._python,
        )
        return render(self._context.pilots.program, settings)

    def _last_output(self, pilot: SubmittedPilot) -> str:
        stamp, index = split_stamp(pilot.stamp)
        return self._batch.output(stamp, index or 0, MAX_LAST_OUTPUT).strip().replace("\n", " | ")


class LocalCesDuty(Duty):
    """Runs all local CEs of the policy in force. CEs of a new policy start in the next cycle.

    A CE that is no longer in the policy gets no more pilots. Its live pilots are monitored to their end.
    """

    name = lease = "local pilots"

    def __init__(self, context: Context, make: Callable[[str], LocalCeDuty]) -> None:
        super().__init__(context)
        self._make = make
        self._duties: dict[str, LocalCeDuty] = {}

    def period(self) -> float:
        return min((duty.period() for duty in self._duties.values()), default=IDLE_DIRECTOR_PERIOD)

    async def work(self) -> None:
        for name, ce in self._context.pool.policy.ces.items():
            if ce.type == "local" and name not in self._duties:
                self._duties[name] = self._make(name)
        for name, duty in self._duties.items():
            await self._rows.alone("serve CEs", name, duty.cycle)

    async def cancel_all(self) -> None:
        for duty in self._duties.values():
            await duty.cancel_all()

    def has_running_pilots(self) -> bool:
        return any(duty.has_running_pilots() for duty in self._duties.values())
