"""Routes for probes: pilots that examine the nodes of a CE."""

from __future__ import annotations

from dataclasses import asdict

from pilotage.core.errors import NotFound
from pilotage.core.pilots.blame import blame
from pilotage.core.policy import Ce
from pilotage.core.policy.lookup import ce_by_name
from pilotage.core.provisioning.probe import ProbeStep, StepState
from pilotage.outside.batch.pilot_logs import read_log_tail
from pilotage.server.http.auditing import audited_call
from pilotage.server.http.call_router import CallRouter
from pilotage.server.http.callers import TheCaller, TheContext
from pilotage.services.audit import audited
from pilotage.services.director.probes import account, is_open, request_probe
from pilotage.store.engine.connection import Connection
from pilotage.store.tables import ce_probes, pilots
from pilotage.store.tables.ce_probes import CeProbeRow
from pilotage.store.tables.pilots import PilotRow
from pilotage.wire.ces import PROBE_CE, SHOW_PROBE, CeProbe, CeProbeRequest, CeProbeStep, CeQuery

router = CallRouter("places")


@router.call(PROBE_CE)
async def probe_ce(body: CeProbeRequest, context: TheContext, caller: TheCaller) -> CeProbe:
    """Submit one probe to a CE, or follow the probe that is under way. Administrators only."""
    ce = ce_by_name(context.pool.policy, body.name)
    pool, clock = context.pool, context.clock
    row = await context.writer.acall(
        audited(
            audited_call(context, caller, PROBE_CE, f"CE {body.name}"),
            lambda tx: request_probe(pool.ids, tx, body.name, by=caller.user, now=clock()),
            made=lambda probe: f"probe {probe.number}",
        )
    )
    context.wake.local_ces.set()
    return await context.quick_read(lambda connection: _show(connection, row, ce, clock()))


@router.call(SHOW_PROBE)
async def show_probe(asked: CeQuery, context: TheContext, caller: TheCaller) -> CeProbe:
    """The last probe of a CE. Administrators only."""
    ce = ce_by_name(context.pool.policy, asked.name)
    row = await context.quick_read(lambda connection: ce_probes.of_ce(connection, asked.name))
    if row is None:
        raise NotFound(f"CE {asked.name} has had no probe", hint=f"submit one: pilotage ce test {asked.name}")
    return await context.quick_read(lambda connection: _show(connection, row, ce, context.clock()))


def _show(connection: Connection, row: CeProbeRow, ce: Ce, now: float) -> CeProbe:
    pilot = None if row.pilot is None else pilots.by_id(connection, row.pilot)
    log = "" if pilot is None or pilot.ended is None else read_log_tail(ce.log_folder, pilot.stamp)
    steps = account(connection, row, ce, log, now)
    failed = next((step for step in steps if step.state is StepState.FAILED), None)
    return CeProbe(
        row.ce,
        row.number,
        row.requested,
        row.requested_by,
        ended=not is_open(connection, row, now),
        steps=[CeProbeStep(**asdict(step)) for step in steps],
        pilot=row.pilot,
        advice=_advice(failed, log, ce, pilot) if failed is not None else "",
        log=log if failed is not None else "",
    )


def _advice(failed: ProbeStep, log: str, ce: Ce, pilot: PilotRow | None) -> str:
    advice = f"this looks like a fault of: {blame(log, failed.text)}"
    has_output = pilot is not None and pilot.batch_id and ce.type != "local"
    if has_output and not ce.log_folder:
        advice += "; with `log_folder` in the CE's section the server can show the pilot's own output"
    return advice
