"""The schedule of a server's duties, and the end of its pilots when the server stops."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Coroutine, Sequence
from typing import TYPE_CHECKING

from pilotage.server.context import Context
from pilotage.server.duties.agents import AgentDuty
from pilotage.server.duties.batch_clients import BatchClients
from pilotage.server.duties.catalogues import CatalogueDuty
from pilotage.server.duties.ce import CeDuty
from pilotage.server.duties.ces import BatchCesDuty, LocalCesDuty
from pilotage.server.duties.costs import CostDuty
from pilotage.server.duties.dependants import DependantsDuty
from pilotage.server.duties.director import DirectorDuty
from pilotage.server.duties.duty import Duty
from pilotage.server.duties.duty_leases import DutyLeases
from pilotage.server.duties.embedded_agent import EmbeddedAgentDuty
from pilotage.server.duties.feed import FeedDuty
from pilotage.server.duties.information import InformationDuty, LocalInformationDuty
from pilotage.server.duties.intake import IntakeDuty
from pilotage.server.duties.intervals import IntervalDuty
from pilotage.server.duties.job_counts import JobCountsDuty
from pilotage.server.duties.locations import LocationDuty
from pilotage.server.duties.loop import every, until_stopped
from pilotage.server.duties.mail import MailDuty
from pilotage.server.duties.output_blocks import OutputBlockDuty
from pilotage.server.duties.peers import (
    ClockDuty,
    DatabaseClock,
    LimitsDuty,
    PeersDuty,
    RebalanceDuty,
    RecountDuty,
    ServersDuty,
    SubmissionsDuty,
)
from pilotage.server.duties.propagation import PropagationDuty
from pilotage.server.duties.queues import QueueDuty
from pilotage.server.duties.registrations import RegistrationDuty
from pilotage.server.duties.relays import RelayDuty
from pilotage.server.duties.release import ReleaseDuty
from pilotage.server.duties.retention import RetentionDuty
from pilotage.server.duties.roll_up import RollUpDuty
from pilotage.server.duties.shares import LedgerDuty, PriorityDuty, ShareDuty
from pilotage.server.duties.startup import patiently
from pilotage.server.duties.storage import StorageDuty
from pilotage.server.duties.wait_reasons import ReasonDuty
from pilotage.server.process.settings import Settings
from pilotage.services.director.ce_director import CeDirector
from pilotage.services.director.iteration_orders import IterationOrders
from pilotage.services.director.local_orders import LocalOrders
from pilotage.services.pool.database_peers import DatabasePeers

if TYPE_CHECKING:
    from pilotage.store.postgresql.notify import Notifications

DRAIN_POLL = 0.5
DUTIES = (
    *("leases", "shares", "queues", "reasons", "retention", "local pilots", "batch pilots"),
    *("servers", "limits", "submissions", "costs", "intake", "agents", "locations", "embedded agent"),
    *("catalogues", "registrations"),
    *("release", "roll-up", "propagation", "output blocks", "counts", "mail"),
)
"""Duties with a lease: a single server runs each for all servers of its database."""


def no_least_period(_: Duty) -> float:
    return 0.0


class DutySchedule:
    """Runs each duty in its period until the server stops."""

    def __init__(
        self,
        settings: Settings,
        context: Context,
        duty_leases: DutyLeases | None,
        notifications: Notifications | None,
        clients: BatchClients,
        least_period: Callable[[Duty], float] = no_least_period,
        further: Sequence[Duty] = (),
    ) -> None:
        """`duty_leases`: None for a single server. `least_period`: seconds between two cycles of a duty, at least.

        `further`: duties that this server has by option.
        """
        self._settings = settings
        self._context = context
        self._duty_leases = duty_leases
        self._notifications = notifications
        self._clients = clients
        self._least_period = least_period
        self._further = further
        self._local_ces = LocalCesDuty(context, self._local_ce)
        self._batch_ces = BatchCesDuty(context, self._batch_ce)
        # A CE is described by the server that submits to it: others may not reach its batch system.
        self._local_information = LocalInformationDuty(context, clients.adapter)
        self._batch_information = InformationDuty(context, clients.adapter)
        self._director = DirectorDuty(context)
        self._catalogues = CatalogueDuty(context)
        self._registrations = RegistrationDuty(context)
        self._embedded_agent = EmbeddedAgentDuty(context, settings.home.folder)
        self._started = False

    async def run(self) -> None:
        self._started = True
        running = self._duties()
        if self._duty_leases is not None:
            running += self._peer_duties(self._duty_leases)
        await asyncio.gather(*running)

    async def _run(self, duty: Duty, wake: asyncio.Event | None = None) -> None:
        """Run a duty in its periods. Of several servers, the one with its lease runs it."""
        leases = self._duty_leases
        if leases is None or not duty.lease:
            await every(self._context, duty, wake, least_period=self._least_period(duty))
        else:
            await every(
                self._context,
                duty,
                wake,
                lambda duty: leases.run(duty.lease, duty.cycle),
                least_period=self._least_period(duty),
            )

    def _duties(self) -> list[Coroutine[None, None, None]]:
        context, home, run = self._context, self._settings.home, self._run
        # One lease for both: the CEs' cycles carry out the orders that the director leaves in memory.
        return [
            run(PriorityDuty(context)),
            run(ShareDuty(context), context.wake.shares),
            run(QueueDuty(context)),
            run(ReasonDuty(context)),
            run(IntervalDuty(context)),
            run(RetentionDuty(context, home.folder / "pilots", home.database.session)),
            run(self._local_ces, context.wake.local_ces),
            run(self._batch_ces),
            run(self._director),
            run(RelayDuty(context)),
            run(self._local_information, self._local_information.wake),
            run(self._batch_information, self._batch_information.wake),
            run(CostDuty(context, self._duty_leases)),
            run(IntakeDuty(context), context.wake.intake),
            run(AgentDuty(context)),
            run(LocationDuty(context), context.wake.locations),
            run(OutputBlockDuty(context)),
            run(self._catalogues, context.wake.catalogues),
            run(self._registrations),
            run(StorageDuty(context)),
            run(self._embedded_agent),
            run(ReleaseDuty(context), context.wake.release),
            run(RollUpDuty(context)),
            run(JobCountsDuty(context)),
            run(DependantsDuty(context), context.wake.dependants),
            run(PropagationDuty(context)),
            run(MailDuty(context)),
            run(FeedDuty(context), context.duties.feed.wanted),
            *map(run, self._further),
        ]

    def _peer_duties(self, leases: DutyLeases) -> list[Coroutine[None, None, None]]:
        """The duties of a server that shares its database."""
        context, pool, clock = self._context, self._context.pool, self._context.clock
        assert isinstance(pool.peers, DatabasePeers)
        assert isinstance(clock, DatabaseClock)

        async def forget_reasons() -> None:
            await context.writer.acall(lambda tx: tx.set(pool.queues, "recorded_reasons", None))

        leases.on_acquired["reasons"] = forget_reasons
        peers = PeersDuty(context, pool.peers)
        duties = (
            RebalanceDuty(context),
            ClockDuty(context, clock),
            RecountDuty(context),
            ServersDuty(context),
            LimitsDuty(context),
            SubmissionsDuty(context),
            LedgerDuty(context, leases),
        )
        running = [self._run(duty) for duty in duties]
        running.append(self._run(peers, peers.wake))
        if self._notifications is not None:
            running.append(until_stopped(context, self._notifications.listen(peers.on_notification)))
        return running

    def _local_ce(self, name: str) -> CeDuty:
        batch = self._clients.adapter(name, self._context.pool.policy.ces[name])
        director = CeDirector(name, LocalOrders(self._settings.node), local=True, place=batch.place)
        return CeDuty(self._context, director, batch, self._clients)

    def _batch_ce(self, name: str) -> CeDuty:
        director = CeDirector(name, IterationOrders(self._settings.node.platform))
        batch = self._clients.adapter(name, self._context.pool.policy.ces[name])
        return CeDuty(self._context, director, batch, self._clients)

    async def stop_pilots(self) -> None:
        """End the pilots as `down` has asked: after their running jobs, at once, or not at all."""
        context = self._context
        if context.stop.mode not in ("drain", "cancel") or not self._started:
            return
        waiting_only = context.stop.mode == "drain"
        context.stop.clear()

        async def cancel() -> None:
            await context.writer.acall(lambda tx: tx.set(context.pool.server, "draining", True))
            if not waiting_only:
                await self._local_ces.cancel_all(waiting_only=False)
            await self._batch_ces.cancel_all(waiting_only=waiting_only)

        await patiently(context, "the end of pilots", cancel)
        while not context.stop.is_set() and await asyncio.to_thread(self._has_running_pilots):
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(context.stop.wait(), DRAIN_POLL)
        context.stop.set()  # listeners of the change feed get their answers

    def _has_running_pilots(self) -> bool:
        return self._local_ces.has_running_pilots() or self._batch_ces.has_running_pilots()

    async def close(self) -> None:
        """End the agent, and the calls to batch systems that are under way."""
        await self._embedded_agent.close()
        self._director.close()
        self._catalogues.close()
        self._context.work.storage.close()
        self._registrations.close()
        self._local_information.close()
        self._batch_information.close()
        await self._local_ces.close()
        await self._batch_ces.close()
