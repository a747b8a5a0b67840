"""Routes for computing elements and the batch systems behind them."""

from __future__ import annotations

import asyncio

from fastapi import APIRouter, Depends

from pilotage.core.errors import NotFound
from pilotage.core.policy import Ce, Policy, parse
from pilotage.core.policy.model import SlurmOptions
from pilotage.outside.batch.slurm import output
from pilotage.outside.batch.slurm.commands import SlurmPilotSize
from pilotage.server.context import caller_of
from pilotage.server.duties.batch_clients import slurm_client
from pilotage.server.http.edge import CheckedRoute
from pilotage.server.tokens import Caller
from pilotage.wire.ces import BatchSystem, CeCheck, CeName, CeRefusal, Partition

router = APIRouter(prefix="/v1", tags=["places"], route_class=CheckedRoute)

COMMAND_TIMEOUT = 15.0
"""Seconds for a command of a batch system while a person waits for its answer."""


@router.get("/batch-systems/{name}")
async def describe_batch_system(name: CeName, caller: Caller = Depends(caller_of)) -> BatchSystem:
    """The partitions of a batch system, as the server's machine sees it. Administrators only."""
    caller.need_administrator()
    if name != "slurm":
        raise NotFound(f"there is no batch system {name!r}", hint="known: slurm")
    client = slurm_client(SlurmOptions(), COMMAND_TIMEOUT)
    partitions = await asyncio.to_thread(client.partitions)
    return BatchSystem(name, [_partition(partition) for partition in partitions])


def _partition(partition: output.Partition) -> Partition:
    return Partition(
        partition.name,
        partition.default,
        partition.up,
        partition.wall,
        partition.nodes,
        partition.processors,
        partition.memory,
    )


@router.post("/ces/check")
async def check_ce(body: CeCheck, caller: Caller = Depends(caller_of)) -> CeRefusal:
    """Ask the batch system whether it would accept the pilots of a CE. Nothing is submitted. Administrators only."""
    caller.need_administrator()
    policy: Policy = await asyncio.to_thread(parse, body.text)
    ce = policy.ces.get(body.name)
    if ce is None:
        raise NotFound(f"the policy has no CE {body.name}", hint=f"CEs: {', '.join(policy.ces) or 'none'}")
    return CeRefusal(await asyncio.to_thread(_refusal, ce))


def _refusal(ce: Ce) -> str:
    """Why the batch system would refuse a pilot of this CE; empty: it would accept it."""
    if ce.type == "local":
        return ""
    size = SlurmPilotSize(ce.pilot_processors, ce.pilot_memory, ce.wall)
    return slurm_client(ce.slurm, COMMAND_TIMEOUT).check(size)
