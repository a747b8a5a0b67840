"""Probes: one pilot for each `pilotage ce test`, which is submitted like all others and runs no job."""

from __future__ import annotations

from dataclasses import replace

import msgspec

from pilotage.core.errors import InvalidInput, NotAuthenticated
from pilotage.core.ids import PilotId
from pilotage.core.policy import Ce
from pilotage.core.provisioning.probe import ProbeFacts, ProbeStep, StepState, clock_step, explain
from pilotage.services.pilots.enrolment import PROBE
from pilotage.services.pilots.exchange import token_hash
from pilotage.services.pilots.lifecycle import PilotEnd, end_silent_pilot
from pilotage.services.pool.ids import IdAllocators
from pilotage.services.pool.state import Pool
from pilotage.store.engine.connection import Connection
from pilotage.store.tables import ce_probes, ces, pilot_submissions, pilots
from pilotage.store.tables.ce_probes import CeProbeRow
from pilotage.store.tables.events import record
from pilotage.store.tables.pilots import PilotRow
from pilotage.store.writer.transaction import Transaction
from pilotage.wire.probe import ProbeAnswer, ProbeCheck, ProbeReport

NEXT_LISTING = 15.0
"""Seconds until a batch system that did not answer has been asked again: somebody may have mended it."""

ABANDONED = 600.0
"""Seconds after which a probe that has not been submitted is given up."""


def is_open(connection: Connection, row: CeProbeRow, now: float) -> bool:
    """Whether a probe may still report."""
    if row.pilot is None:
        return now - row.requested < ABANDONED
    pilot = pilots.by_id(connection, row.pilot)
    return pilot is not None and pilot.ended is None


def request_probe(ids: IdAllocators, tx: Transaction, ce: str, *, by: str, now: float) -> CeProbeRow:
    """Ask the CE's director for a probe; the probe that is under way, if there is one."""
    last = ce_probes.of_ce(tx.connection, ce)
    if last is not None and is_open(tx.connection, last, now):
        return last
    number = 1 if last is None else last.number + 1
    ce_probes.replace(tx.connection, ce, number, by=by, now=now)
    detail = f"CE {ce}: probe {number}"
    record(tx.connection, ids.events, at=now, kind="ce", actor=f"user:{by}", detail=detail)
    return CeProbeRow(ce, number, now, by, None, "")


def is_wanted(tx: Transaction, ce: str, now: float) -> bool:
    """Whether a probe of this CE waits for its submission."""
    row = ce_probes.of_ce(tx.connection, ce)
    return row is not None and row.pilot is None and now - row.requested < ABANDONED


def mark_submitted(tx: Transaction, ce: str, pilot: PilotId) -> None:
    """Note the pilot whose intent was stored for the wanted probe. It is given no job."""
    pilots.update(tx.connection, pilot, leave="drain")
    ce_probes.set_pilot(tx.connection, ce, pilot)


def receive_report(pool: Pool, tx: Transaction, token: str, report: ProbeReport, now: float) -> ProbeAnswer:
    """Store the findings of a probe, and end it. The same report again changes nothing."""
    # Locked, so that two servers do not both end it.
    pilot = next(iter(pilots.by_tokens(tx.connection, [token_hash(token)])), None)
    if pilot is None or pilot.pilot_type != PROBE:
        raise NotAuthenticated("this token belongs to no probe", hint="`pilotage ce test` submits probes")
    if pilot.ended is None:
        steps = [_step(check) for check in report.checks]
        steps.append(clock_step(report.clock - now))
        ce_probes.set_checks(tx.connection, pilot.id, msgspec.json.encode(steps).decode())
        end_silent_pilot(pool, tx, pilot, PilotEnd.LEFT, "probe", now)
    return ProbeAnswer()


def _step(check: ProbeCheck) -> ProbeStep:
    if check.state not in set(StepState):
        raise InvalidInput(
            f"there is no state of a check {check.state!r}", hint=f"states: {', '.join(StepState)}"
        )
    return ProbeStep(check.name, StepState(check.state), check.text)


def account(connection: Connection, row: CeProbeRow, ce: Ce, log: str, now: float) -> tuple[ProbeStep, ...]:
    """The steps of a probe, as the rows tell them. `log`: the end of its own output."""
    progress = ces.by_name(connection, row.ce).progress
    is_local = ce.type == "local"
    at = progress.unreachable_at
    # An error from before the order tells nothing about the present.
    looked_again = now - row.requested >= NEXT_LISTING if at is None else at >= row.requested
    facts = ProbeFacts(progress.unreachable, looked_again, is_local or progress.listed is not None, is_local)
    pilot = None if row.pilot is None else pilots.by_id(connection, row.pilot)
    if pilot is None:
        return explain(facts)
    return explain(
        replace(
            facts,
            submitted=True,
            batch_id=pilot.batch_id.partition("@")[0],
            wait_reason=_wait_reason(connection, pilot),
            started=pilot.started is not None,
            hostname=pilot.hostname,
            waited=(pilot.started or pilot.ended or now) - pilot.submitted,
            ended=pilot.ended is not None,
            reason=pilot.reason,
            log=log,
            checks=msgspec.json.decode(row.checks, type=tuple[ProbeStep, ...]) if row.checks else (),
        )
    )


def _wait_reason(connection: Connection, pilot: PilotRow) -> str:
    submission = pilot_submissions.live_by_stamp(connection, pilot.submission_stamp)
    return "" if submission is None else submission.reason
