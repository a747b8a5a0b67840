"""The systems outside on paper, as servers of a case see them: a batch system and a catalogue of data sets."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final, cast

from pilotage.core.datasets.facts import Replica
from pilotage.outside.batch.submission import NativeState
from pilotage.outside.catalogue.adapter import BlockPlaces
from pilotage.server.duties.batch_clients import OwnBatchClients
from pilotage.server.duties.catalogues import CatalogueDuty
from pilotage.server.duties.ce import CeDuty
from pilotage.server.duties.ces import BatchCesDuty
from pilotage.server.duties.director import DirectorDuty
from pilotage.server.duties.duty import Duty
from pilotage.server.duties.registrations import RegistrationDuty
from pilotage.services.catalogue import following
from pilotage.services.director.ce_director import CeDirector
from pilotage.services.director.iteration_orders import IterationOrders
from pilotage.store.tables import pilots
from tests.paper_batch import PaperBatch, PaperJob
from tests.paper_catalogue import PaperCatalogue

if TYPE_CHECKING:
    from tests.interleavings.server import PairServer

CE = "a"
"""The CE whose batch system is on paper."""
FOLLOWED = "c:data:one"
_R, _E = NativeState.RUNNING, NativeState.ENDED
LISTINGS: Final[Mapping[str, Mapping[str, NativeState]]] = {
    "all": {},
    "ends": {"worker": _E, "lost": _E, "half": _E},
}
"""The batch jobs of pilots that do not run. The one of `intended` always waits."""
AT_FIRST: Final = {"data:kept": "A", "data:moved": "A"}
NOW: Final = {"data:kept": "A", "data:moved": "B", "data:new": "A"}
"""The blocks of the catalogue, and their sites."""


def _catalogue(blocks: Mapping[str, str]) -> PaperCatalogue:
    made = PaperCatalogue()
    for name, site in blocks.items():
        made.add(name, 2, places=BlockPlaces((Replica(site, f"/data/{site}"),)))
    return made


def _meet(server: PairServer, blocks: Mapping[str, str]) -> None:
    catalogue = _catalogue(blocks)
    setattr(server.context.work.catalogues, "adapter", lambda policy, name: catalogue)  # noqa: B010


def catalogues(server: PairServer) -> Duty:
    _meet(server, NOW)
    return CatalogueDuty(server.context)


def registrations(server: PairServer) -> Duty:
    _meet(server, NOW)
    return RegistrationDuty(server.context)


def director(server: PairServer) -> Duty:
    pool = server.context.pool
    pool.ces.nodes[CE] = IterationOrders("el9").node(pool.policy.ces[CE])
    return DirectorDuty(server.context)


def ces(server: PairServer, listing: str = "all") -> BatchCesDuty:
    context = server.context
    batch = PaperBatch()
    for pilot in pilots.with_batch_jobs(context.readers.connection(), CE):
        name = pilot.stamp.partition("/")[0]
        state = NativeState.WAITING if name == "intended" else LISTINGS[listing].get(name, _R)
        batch.jobs.append(PaperJob(name, 0, f"{pilot.id}.0", state, ""))
    rule = IterationOrders("el9")
    duty = BatchCesDuty(
        context,
        lambda name: CeDuty(context, CeDirector(name, rule), cast(Any, batch), OwnBatchClients(context, 64)),
    )
    # The other CEs have batch systems that nobody asks.
    duty._sections = {name: ce for name, ce in context.pool.policy.ces.items() if name != CE}
    return duty


async def run(duty: Duty) -> None:
    """One cycle, and the work that it begins."""
    await duty.cycle()
    running = getattr(duty, "_running", None) or getattr(duty, "_cycles", None) or {}
    await asyncio.gather(*(running.values() if isinstance(running, dict) else [running]))


async def submit_pilots(server: PairServer) -> None:
    """The director orders pilots, and the CE gets them."""
    duty = ces(server)
    await run(duty)
    await run(director(server))
    await run(duty)
    await duty.close()


async def list_ends(server: PairServer) -> None:
    """A listing shows the ends of pilots, one of them with jobs."""
    duty = ces(server, "ends")
    await run(duty)
    await duty.close()


def follow_data(server: PairServer) -> None:
    """A data set of the catalogue has been read once, and is due again."""
    policy = server.context.pool.policy

    def ask() -> None:
        now = server.context.clock()
        server.write(lambda tx: following.follow(tx, policy, FOLLOWED, owner="alice", group="admin", now=now))

    async def read(server: PairServer) -> None:
        _meet(server, AT_FIRST)
        await run(CatalogueDuty(server.context))

    ask()
    server._run(read(server))
    ask()
