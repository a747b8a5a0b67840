"""The schedule of a server's duties, and the end of its pilots when the server stops."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections.abc import Awaitable, Callable, Coroutine
from typing import TYPE_CHECKING

from pilotage.core.policy import Ce
from pilotage.outside.batch.adapter import BatchAdapter
from pilotage.outside.batch.registry import make_adapter_of
from pilotage.server.context import Context
from pilotage.server.duties.agents import AGENT_PERIOD, AgentDuty
from pilotage.server.duties.batch_ces import BATCH_PERIOD, BatchCeDuty, BatchCesDuty
from pilotage.server.duties.batch_clients import server_machine
from pilotage.server.duties.costs import CostDuty
from pilotage.server.duties.director import DirectorDuty
from pilotage.server.duties.duty_leases import DutyLeases
from pilotage.server.duties.embedded_agent import EMBEDDED_AGENT_PERIOD, EmbeddedAgentDuty
from pilotage.server.duties.information import INFORMATION_TICK, InformationDuty
from pilotage.server.duties.intake import INTAKE_PERIOD, IntakeDuty
from pilotage.server.duties.local_ces import LocalCeDuty, LocalCesDuty
from pilotage.server.duties.locations import LocationDuty
from pilotage.server.duties.loop import every, until_stopped
from pilotage.server.duties.output_blocks import OutputBlockDuty
from pilotage.server.duties.peers import LIMIT_PERIOD, POLL_PERIOD, WATCH_PERIOD, DatabaseClock, PeersDuty
from pilotage.server.duties.propagation import PROPAGATION_PERIOD, PropagationDuty
from pilotage.server.duties.queues import QUEUE_PERIOD, QueueDuty
from pilotage.server.duties.release import RELEASE_PERIOD, ReleaseDuty
from pilotage.server.duties.retention import RetentionDuty
from pilotage.server.duties.roll_up import ROLL_UP_PERIOD, RollUpDuty
from pilotage.server.duties.shares import PRIORITY_PERIOD, LedgerDuty, PriorityDuty, ShareDuty
from pilotage.server.duties.wait_reasons import ReasonDuty
from pilotage.server.process.settings import Settings
from pilotage.services.director.batch import BatchDirector
from pilotage.services.director.local import LocalDirector
from pilotage.services.pool.database_peers import DatabasePeers

if TYPE_CHECKING:
    from pilotage.store.postgresql.notify import Notifications

DRAIN_POLL = 0.5
ABANDONED_PERIOD = 30.0
"""Seconds between two searches for abandoned submissions of other servers."""
LEDGER_PERIOD = 60.0
DUTIES = (
    *("leases", "shares", "queues", "reasons", "retention", "local pilots", "batch pilots"),
    *("servers", "limits", "submissions", "costs", "intake", "agents", "locations", "embedded agent"),
    *("release", "roll-up", "propagation", "output blocks"),
)
"""Duties with a lease: a single server runs each for all servers of its database."""

Cycle = Callable[[], Awaitable[None]]


class DutySchedule:
    """Runs each duty in its period until the server stops."""

    def __init__(
        self,
        settings: Settings,
        context: Context,
        duty_leases: DutyLeases | None,
        notifications: Notifications | None,
        open_files: int,
    ) -> None:
        """`duty_leases`: None for a single server. `open_files`: the limit of open files for local pilots."""
        self._settings = settings
        self._context = context
        self._duty_leases = duty_leases
        self._notifications = notifications
        self._open_files = open_files
        self._local_ces = LocalCesDuty(context, self._local_ce)
        self._batch_ces = BatchCesDuty(context, self._batch_ce)
        # A CE is described by the server that submits to it: others may not reach its batch system.
        self._local_information = InformationDuty(context, self._adapter, lambda ce: ce.type == "local")
        self._batch_information = InformationDuty(context, self._adapter, lambda ce: ce.type != "local")
        self._director = DirectorDuty(context)
        self._embedded_agent = EmbeddedAgentDuty(context, settings.home.folder)
        self._started = False

    async def run(self) -> None:
        self._started = True
        running = self._duties()
        if self._duty_leases is not None:
            running += self._peer_duties(self._duty_leases)
        await asyncio.gather(*running)

    def _leased(self, name: str, cycle: Cycle) -> Cycle:
        """A cycle that only the server with the lease of the duty runs."""
        leases = self._duty_leases
        return cycle if leases is None else lambda: leases.run(name, cycle)

    def _duties(self) -> list[Coroutine[None, None, None]]:
        context, home = self._context, self._settings.home
        queues, shares, reasons = QueueDuty(context), ShareDuty(context), ReasonDuty(context)
        costs = CostDuty(context, self._duty_leases)
        intake, agents = IntakeDuty(context), AgentDuty(context)
        locations, output_blocks = LocationDuty(context), OutputBlockDuty(context)
        release, roll_up = self._leased("release", ReleaseDuty(context).cycle), RollUpDuty(context)
        propagation = self._leased("propagation", PropagationDuty(context).cycle)
        retention = RetentionDuty(context, home.folder / "pilots", home.database.session)
        local_ces = self._leased("local pilots", self._local_ces.cycle)
        batch_ces = self._leased("batch pilots", self._batch_pilots)
        local_information = self._leased("local pilots", self._local_information.cycle)
        batch_information = self._leased("batch pilots", self._batch_information.cycle)
        embedded_agent = self._leased("embedded agent", self._embedded_agent.cycle)
        return [
            every(context, lambda: PRIORITY_PERIOD, PriorityDuty(context).cycle),
            every(context, shares.period, self._leased("shares", shares.cycle), context.wake_shares),
            every(context, lambda: QUEUE_PERIOD, self._leased("queues", queues.cycle)),
            every(context, reasons.period, self._leased("reasons", reasons.cycle)),
            every(context, retention.period, self._leased("retention", retention.cycle)),
            every(context, self._local_ces.period, local_ces, context.wake_director),
            every(context, lambda: BATCH_PERIOD, batch_ces),
            every(context, lambda: INFORMATION_TICK, local_information, self._local_information.wake),
            every(context, lambda: INFORMATION_TICK, batch_information, self._batch_information.wake),
            every(context, costs.period, costs.cycle),
            every(context, lambda: INTAKE_PERIOD, self._leased("intake", intake.cycle), context.wake_intake),
            every(context, lambda: AGENT_PERIOD, self._leased("agents", agents.cycle)),
            every(
                context, locations.period, self._leased("locations", locations.cycle), context.wake_locations
            ),
            every(context, output_blocks.period, self._leased("output blocks", output_blocks.cycle)),
            every(context, lambda: EMBEDDED_AGENT_PERIOD, embedded_agent),
            every(context, lambda: RELEASE_PERIOD, release, context.wake_release),
            every(context, lambda: ROLL_UP_PERIOD, self._leased("roll-up", roll_up.cycle)),
            every(context, lambda: PROPAGATION_PERIOD, propagation),
        ]

    async def _batch_pilots(self) -> None:
        """One lease for both: the CEs' cycles carry out the orders that the director leaves in memory."""
        await self._batch_ces.cycle()
        await self._director.cycle()

    def _peer_duties(self, leases: DutyLeases) -> list[Coroutine[None, None, None]]:
        """The duties of a server that shares its database."""
        context, pool, clock = self._context, self._context.pool, self._context.clock
        assert isinstance(pool.peers, DatabasePeers)
        assert isinstance(clock, DatabaseClock)

        async def forget_reasons() -> None:
            await context.writer.acall(lambda tx: tx.set(pool, "recorded_reasons", None))

        leases.on_acquired["reasons"] = forget_reasons
        peers, ledger = PeersDuty(context, pool.peers, leases, clock), LedgerDuty(context, leases)
        cycles: list[tuple[float, Cycle]] = [
            (POLL_PERIOD, peers.rebalance_limits),
            (WATCH_PERIOD, peers.set_clock),
            (WATCH_PERIOD, peers.recount),
            (WATCH_PERIOD, self._leased("servers", peers.watch)),
            (LIMIT_PERIOD, self._leased("limits", peers.keep_limits)),
            (ABANDONED_PERIOD, self._leased("submissions", peers.finish_submissions)),
            (LEDGER_PERIOD, ledger.cycle),
        ]
        running = [every(context, lambda period=period: period, cycle) for period, cycle in cycles]  # type: ignore[misc]
        running.append(every(context, peers.poll_delay, peers.poll, peers.wake))
        if self._notifications is not None:
            running.append(until_stopped(context, self._notifications.listen(peers.on_notification)))
        return running

    def _adapter(self, ce: Ce) -> BatchAdapter:
        logs, shared = self._context.pilot_logs, self._context.pool.peers.shared
        return make_adapter_of(ce, server_machine(logs, shared=shared, open_files=self._open_files))

    def _local_ce(self, name: str) -> LocalCeDuty:
        director = LocalDirector(name, self._settings.node)
        batch = self._adapter(self._context.pool.policy.ces[name])
        return LocalCeDuty(self._context, director, batch, sys.executable)

    def _batch_ce(self, name: str) -> BatchCeDuty:
        director = BatchDirector(name, self._settings.node.platform)
        return BatchCeDuty(self._context, director, self._adapter(self._context.pool.policy.ces[name]))

    async def stop_pilots(self) -> None:
        """End the pilots as `down` has asked: after their running jobs, at once, or not at all."""
        context = self._context
        if context.stopping not in ("drain", "cancel") or not self._started:
            return
        await context.writer.acall(lambda tx: tx.set(context.pool, "draining", True))
        context.stop.clear()
        if context.stopping == "cancel":
            await self._local_ces.cancel_all()
        await self._batch_ces.cancel_all(waiting_only=context.stopping == "drain")
        while not context.stop.is_set() and await asyncio.to_thread(self._has_running_pilots):
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(context.stop.wait(), DRAIN_POLL)

    def _has_running_pilots(self) -> bool:
        return self._local_ces.has_running_pilots() or self._batch_ces.has_running_pilots()

    async def close(self) -> None:
        """End the agent, and the calls to batch systems that are under way."""
        await self._embedded_agent.close()
        self._director.close()
        self._local_information.close()
        self._batch_information.close()
        await self._batch_ces.close()
