"""The duties of a server, each as one cycle that it is told to run."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from pilotage.server.duties.agents import AgentDuty
from pilotage.server.duties.costs import CostDuty
from pilotage.server.duties.dependants import DependantsDuty
from pilotage.server.duties.duty import Duty
from pilotage.server.duties.intake import IntakeDuty
from pilotage.server.duties.intervals import IntervalDuty
from pilotage.server.duties.job_counts import JobCountsDuty
from pilotage.server.duties.leases import LeaseDuty
from pilotage.server.duties.locations import LocationDuty
from pilotage.server.duties.output_blocks import OutputBlockDuty
from pilotage.server.duties.peers import (
    LimitsDuty,
    PeersDuty,
    RebalanceDuty,
    ServersDuty,
    SubmissionsDuty,
)
from pilotage.server.duties.propagation import PropagationDuty
from pilotage.server.duties.queues import QueueDuty
from pilotage.server.duties.release import ReleaseDuty
from pilotage.server.duties.retention import RetentionDuty
from pilotage.server.duties.roll_up import RollUpDuty
from pilotage.server.duties.shares import ShareDuty
from pilotage.server.duties.wait_reasons import ReasonDuty
from pilotage.services.pool.database_peers import DatabasePeers
from tests.interleavings import outside
from tests.interleavings.server import PairServer, Work

Make = Callable[[PairServer], Duty]


def _leases(server: PairServer) -> Duty:
    duty = LeaseDuty(server.context)
    # It has been heard without a pause: its first cycle is none of a server that has just started.
    duty._reachable_until = server.context.clock()
    return duty


def _peers(server: PairServer) -> Duty:
    peers = server.context.pool.peers
    assert isinstance(peers, DatabasePeers)
    return PeersDuty(server.context, peers)


def _retention(server: PairServer) -> Duty:
    home = server._home
    return RetentionDuty(server.context, home.folder / "pilots", home.database.session)


def _reasons(server: PairServer) -> Duty:
    duty = ReasonDuty(server.context)
    duty._started = True
    return duty


def _of(duty: Callable[..., Duty]) -> Make:
    return lambda server: duty(server.context)


OF_EACH: Final[Mapping[str, Make]] = {
    "peers": _peers,
    "shared limits": _of(RebalanceDuty),
    "dependants": _of(DependantsDuty),
}
"""Duties that each server has."""
WITH_LEASE: Final[Mapping[str, Make]] = {
    "leases": _leases,
    "limits": _of(LimitsDuty),
    "submissions": _of(SubmissionsDuty),
    "intake": _of(IntakeDuty),
    "agents": _of(AgentDuty),
    "locations": _of(LocationDuty),
    "release": _of(ReleaseDuty),
    "roll-up": _of(RollUpDuty),
    "propagation": _of(PropagationDuty),
    "output blocks": _of(OutputBlockDuty),
}
"""Duties of one server at a time that move work on."""
BESIDE_WORK: Final[Mapping[str, Make]] = {
    "servers": _of(ServersDuty),
    "queues": _of(QueueDuty),
    "retention": _retention,
    "counts": _of(JobCountsDuty),
    "reasons": _reasons,
    "intervals": _of(IntervalDuty),
    "shares": _of(ShareDuty),
    "costs": lambda server: CostDuty(server.context, None),
    "director": outside.director,
    "batch CEs": outside.ces,
    "catalogues": outside.catalogues,
    "registrations": outside.registrations,
}
"""Duties of one server at a time that no work waits for."""
ALL: Final[Mapping[str, Make]] = {**OF_EACH, **WITH_LEASE, **BESIDE_WORK}


def cycle(name: str) -> Work:
    """One cycle of a duty, as of a server that has its lease."""

    async def run(server: PairServer) -> None:
        await outside.run(ALL[name](server))

    return Work(f"duty {name}", run)
