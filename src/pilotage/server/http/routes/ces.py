"""Routes for computing elements and the batch systems behind them."""

from __future__ import annotations

import asyncio
from collections.abc import Collection

from pilotage.core.errors import InvalidInput, Unreachable
from pilotage.core.pilots.clocks import ADVICE
from pilotage.core.pilots.cost import CoreSeconds
from pilotage.core.policy import Policy, parse
from pilotage.core.policy.lookup import ce_by_name, ce_to_ask
from pilotage.outside.batch import adapter
from pilotage.outside.batch.pilot_logs import read_log_tail
from pilotage.server.context import Context
from pilotage.server.duties.batch_clients import COMMAND_TIMEOUT, server_machine, waiting_adapter
from pilotage.server.duties.ce_recording import record_rehearsal
from pilotage.server.http.auditing import audited_call
from pilotage.server.http.call_router import CallRouter
from pilotage.server.http.callers import TheCaller, TheContext
from pilotage.server.tokens import Caller
from pilotage.services.audit import audited
from pilotage.services.director.ce_jobs import listed_jobs
from pilotage.services.director.ce_record import switch_ce
from pilotage.services.director.ce_status import USE_WINDOW, clocks_off, failure, recent_use, summaries
from pilotage.store.engine.connection import Connection
from pilotage.store.tables import ces
from pilotage.store.tables.ces import CeSwitch
from pilotage.wire.call import ApiCall
from pilotage.wire.ces import (
    CHECK_CE,
    DESCRIBE_BATCH_SYSTEM,
    DISABLE_CE,
    ENABLE_CE,
    LIST_CE_JOBS,
    LIST_CES,
    RECORD_CE,
    REPORT_CE,
    Account,
    BatchSystem,
    BatchSystemQuery,
    CeChange,
    CeCheck,
    CeJob,
    CeName,
    CeProbeRequest,
    CeQuery,
    CeRecording,
    CeRefusal,
    CeReport,
    CeSummary,
    NodeKind,
    Partition,
)

router = CallRouter("places")

FAILURES_SHOWN = 5
"""Failed pilots in a report."""


@router.call(DESCRIBE_BATCH_SYSTEM)
async def describe_batch_system(
    name: CeName, asked: BatchSystemQuery, context: TheContext, caller: TheCaller
) -> BatchSystem:
    """The partitions of a batch system and the accounts of the server's user there. Administrators only."""
    batch = waiting_adapter(
        context, ce_to_ask(name, dict(words.partition("=")[::2] for words in asked.option), asked.reach)
    )
    partitions = await asyncio.to_thread(batch.describe)
    accounts = await asyncio.to_thread(_accounts, batch)
    return BatchSystem(name, [_partition(partition) for partition in partitions], accounts)


def _accounts(batch: adapter.BatchAdapter) -> list[Account]:
    """Without an answer of the accounting nobody is kept from adding a CE: the batch system checks it anyway."""
    try:
        known = batch.accounts()
    except Unreachable:
        return []
    return [Account(row.name, row.partition, list(row.qos), row.default) for row in known]


def _partition(partition: adapter.BatchPartition) -> Partition:
    return Partition(
        partition.name,
        partition.default,
        partition.up,
        partition.wall,
        [NodeKind(*kind) for kind in partition.kinds],
    )


@router.call(CHECK_CE)
async def check_ce(body: CeCheck, context: TheContext, caller: TheCaller) -> CeRefusal:
    """Ask the batch system whether it would accept the pilots of a CE. Nothing is submitted. Administrators only."""
    policy: Policy = await asyncio.to_thread(parse, body.text)
    ce = ce_by_name(policy, body.name)
    if ce.type == "local":
        return CeRefusal()
    shape = adapter.Shape(ce.pilot_processors, ce.pilot_memory, ce.wall)
    return CeRefusal(await asyncio.to_thread(waiting_adapter(context, ce).check, shape))


@router.call(RECORD_CE)
async def record_ce(body: CeProbeRequest, context: TheContext, caller: TheCaller) -> CeRecording:
    """Submit, release and cancel two batch jobs that sleep, and return the answers of the batch system."""
    ce = ce_by_name(context.pool.policy, body.name)
    stamp = context.pool.secrets.token_hex(8)

    def rehearse() -> tuple[str, str]:
        return record_rehearsal(ce, server_machine(context), COMMAND_TIMEOUT, stamp)

    outside = context.pilots.outside
    return CeRecording(*await asyncio.to_thread(outside.ask, "rehearsal", tuple[str, str], rehearse))


@router.call(LIST_CE_JOBS)
async def list_ce_jobs(asked: CeQuery, context: TheContext, caller: TheCaller) -> list[CeJob]:
    """The batch jobs of a CE's pilots with their properties, read from the batch system. Administrators only."""
    batch = waiting_adapter(context, ce_by_name(context.pool.policy, asked.name))
    return await asyncio.to_thread(lambda: listed_jobs(batch, asked.name, context.readers.connection()))


@router.call(LIST_CES)
def list_ces(context: TheContext, caller: TheCaller) -> list[CeSummary]:
    """Every CE of the policy: whether pilots are submitted there and why not, and its room."""
    return _summaries(context, context.readers.connection(), context.pool.policy.ces)


def _summaries(context: Context, connection: Connection, names: Collection[str]) -> list[CeSummary]:
    pool, policy, now = context.pool, context.pool.policy, context.clock()
    problems = {
        name: pool.ces.published.of(policy, name, live, pool.server.home_owner, now).problems
        for name, live in list(pool.ces.information.items())
        if name in policy.ces and name in names
    }
    return summaries(policy, connection, now, problems, names=names)


@router.call(REPORT_CE)
def report_ce(asked: CeQuery, context: TheContext, caller: TheCaller) -> CeReport:
    """One CE with its last failed pilots and the nodes whose clock is off.

    Administrators also see the output of pilots and the CE's efficiency; administrators of jobs see the efficiency.
    """
    connection, everything, now = context.readers.connection(), caller.administrator, context.clock()
    name = asked.name
    ce = ce_by_name(context.pool.policy, name)
    [summary] = _summaries(context, connection, [name])
    clocks = clocks_off(connection, name)
    use = recent_use(connection, name, now) if caller.viewer().everything else CoreSeconds()
    pilots = ces.failed_pilots(connection, name, FAILURES_SHOWN)
    return CeReport(
        summary,
        [
            failure(pilot, read_log_tail(ce.log_folder, pilot.stamp), everything=everything)
            for pilot in pilots
        ],
        clocks,
        ADVICE if clocks else "",
        use.total,
        use.efficiency,
        USE_WINDOW,
    )


@router.call(ENABLE_CE)
async def enable_ce(body: CeChange, context: TheContext, caller: TheCaller) -> CeSummary:
    """Submit pilots to a CE again, and end its pause. Administrators only."""
    return await _switch(context, caller, ENABLE_CE, body, CeSwitch.ON)


@router.call(DISABLE_CE)
async def disable_ce(body: CeChange, context: TheContext, caller: TheCaller) -> CeSummary:
    """Submit no more pilots to a CE until it is enabled. Its pilots go on. Administrators only."""
    if not body.reason:
        raise InvalidInput("reason: say why the CE is disabled", field="reason")
    return await _switch(context, caller, DISABLE_CE, body, CeSwitch.DISABLED)


async def _switch(
    context: Context,
    caller: Caller,
    call: ApiCall[type[CeChange], CeSummary],
    body: CeChange,
    switch: CeSwitch,
) -> CeSummary:
    ce_by_name(context.pool.policy, body.name)
    pool, now = context.pool, context.clock()
    await context.writer.acall(
        audited(
            audited_call(context, caller, call, f"CE {body.name}", body.reason),
            lambda tx: switch_ce(
                pool.ids, tx, body.name, switch, by=caller.user, reason=body.reason, now=now
            ),
            state=lambda tx: str(ces.by_name(tx.connection, body.name).switch) or "enabled",
        )
    )
    context.wake.local_ces.set()
    [summary] = await context.quick_read(lambda connection: _summaries(context, connection, [body.name]))
    return summary
