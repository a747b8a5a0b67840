"""The duty of local CEs: starts and monitors pilots on this machine."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence

from pilotage.core.ids import PilotId
from pilotage.core.pilots.handover import Action, Seen
from pilotage.core.pilots.orders import LeaveOrder
from pilotage.outside.batch.adapter import BatchAdapter, BatchJob, Listing, Shape
from pilotage.outside.batch.script import PilotSettings, render
from pilotage.server.context import Context
from pilotage.server.duties.row_by_row import each
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
        self._live = 0
        self._signalled: set[PilotId] = set()
        """Killed pilots that have had their signal."""

    def period(self) -> float:
        return DIRECTOR_PERIOD if self._live else IDLE_DIRECTOR_PERIOD

    async def cycle(self) -> None:
        pool, writer, clock = self._context.pool, self._context.writer, self._context.clock
        await self._watch()
        ordered = await writer.acall(lambda tx: self._director.order(pool, tx, clock(), self._batch.place))
        live = await self._context.quick_read(self._live_pilots)
        neighbours = [pilot.batch_id for pilot in live if pilot.batch_id]
        for shape, intents in _by_shape(ordered).items():
            neighbours += await self._start(shape, intents, neighbours)
        self._live = len(live) + len(ordered)

    async def cancel_all(self) -> None:
        """Ask every pilot to release its jobs and exit."""
        live = await self._context.quick_read(self._live_pilots)
        listing = await asyncio.to_thread(self._list, live)
        ids = [sighting.batch_id for sighting in listing.sightings.values()]
        await asyncio.to_thread(self._batch.cancel, ids)

    def has_running_pilots(self) -> bool:
        """Whether any pilot of this CE still runs."""
        live = self._live_pilots(self._context.readers.connection())
        return any(sighting.seen is Seen.SEEN for sighting in self._list(live).sightings.values())

    def _list(self, live: Sequence[SubmittedPilot]) -> Listing:
        now = self._context.clock()
        return self._batch.status({pilot.stamp: pilot.batch_id for pilot in live}, now)

    async def _watch(self) -> None:
        """Apply the action of the hand-over table to each live pilot."""
        pool, writer, clock = self._context.pool, self._context.writer, self._context.clock
        live = await self._context.quick_read(self._live_pilots)
        listing = await asyncio.to_thread(self._list, live)
        await self._cancel_killed(live, listing)
        for pilot in live:
            sighting = listing.sightings[pilot.stamp]
            action = self._director.action(pilot, sighting.seen, holds=self._batch.holds)
            if action is Action.LOSE:
                output = await asyncio.to_thread(self._last_output, pilot)
                await writer.acall(
                    lambda tx, pilot=pilot, output=output: self._director.record_end(  # type: ignore[misc]
                        pool, tx, pilot, output, clock(), listing.at
                    )
                )
            elif action is Action.ABORT:
                await writer.acall(
                    lambda tx, pilot=pilot: self._director.abort(pool, tx, pilot.id, NEVER_BEGAN, clock())  # type: ignore[misc]
                )
            elif sighting.seen is Seen.SEEN and sighting.batch_id != pilot.batch_id:
                log.info("pilot %d is batch job %s, found by its stamp", pilot.id, sighting.batch_id)
                await self._record(pilot.id, sighting.batch_id)

    async def _cancel_killed(self, live: Sequence[SubmittedPilot], listing: Listing) -> None:
        """Signal each pilot that an administrator has killed, once: a second signal would give it more time."""
        killed = {
            pilot.id: listing.sightings[pilot.stamp] for pilot in live if pilot.leave == LeaveOrder.KILL
        }
        batch_ids = [
            sighting.batch_id
            for pilot, sighting in killed.items()
            if sighting.seen is Seen.SEEN and pilot not in self._signalled
        ]
        self._signalled = set(killed)
        if batch_ids:
            await asyncio.to_thread(self._batch.cancel, batch_ids)

    def _live_pilots(self, connection: Connection) -> list[SubmittedPilot]:
        return pilots.with_batch_jobs(connection, self._director.ce)

    async def _start(self, shape: Shape, intents: Sequence[PilotIntent], neighbours: list[str]) -> list[str]:
        """Start pilots of one shape and record their batch ids, which are returned."""
        pool, writer, clock = self._context.pool, self._context.writer, self._context.clock
        batch_jobs = [BatchJob(intent.stamp, self._script(intent)) for intent in intents]
        receipts = await asyncio.to_thread(self._batch.submit, shape, batch_jobs, neighbours)
        for intent in intents:
            receipt = receipts[intent.stamp]
            if receipt.refused:
                log.warning("%s", receipt.refused)
                await writer.acall(
                    lambda tx, pilot=intent.pilot, reason=receipt.refused: self._director.abort(  # type: ignore[misc]
                        pool, tx, pilot, reason, clock()
                    )
                )
            elif receipt.batch_id:
                await self._record(intent.pilot, receipt.batch_id)
        return [receipt.batch_id for receipt in receipts.values() if receipt.batch_id]

    async def _record(self, pilot: PilotId, batch_id: str) -> None:
        pool, writer = self._context.pool, self._context.writer
        if not await writer.acall(lambda tx: self._director.record_start(pool, tx, pilot, batch_id)):
            # The intent was abandoned meanwhile: the server would refuse this pilot.
            await asyncio.to_thread(self._batch.cancel, [batch_id])

    def _script(self, intent: PilotIntent) -> str:
        settings = PilotSettings(
            server=self._context.pilot_url,
            fingerprints=self._context.fingerprints,
            ca_file=self._context.ca_file,
            secret=intent.secret,
            index=intent.index,
            processors=intent.processors,
            memory=intent.memory,
            stamp=intent.stamp,
            python=self._python,
        )
        return render(self._context.program, settings)

    def _last_output(self, pilot: SubmittedPilot) -> str:
        return self._batch.output(pilot.stamp, MAX_LAST_OUTPUT).strip().replace("\n", " | ")


def _by_shape(intents: Sequence[PilotIntent]) -> dict[Shape, list[PilotIntent]]:
    shapes: dict[Shape, list[PilotIntent]] = {}
    for intent in intents:
        shapes.setdefault(Shape(intent.processors, intent.memory), []).append(intent)
    return shapes


class LocalCesDuty:
    """Runs all local CEs of the policy in force. CEs of a new policy start in the next cycle.

    A CE that is no longer in the policy gets no more pilots. Its live pilots are monitored to their end.
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

    def has_running_pilots(self) -> bool:
        return any(duty.has_running_pilots() for duty in self._duties.values())
