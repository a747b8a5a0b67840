"""Stores the answers of batch systems about their CEs, and the failures to get one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import median

from pilotage.core.glue.information import CeInformation
from pilotage.services.pool.ids import IdAllocators
from pilotage.services.pool.peers import PeerUpdate
from pilotage.services.pool.state import Pool
from pilotage.store.tables import ce_information
from pilotage.store.tables.events import record
from pilotage.store.tables.waits import PilotWait
from pilotage.store.writer.transaction import Transaction

SERVER = "server"

WAITS_PER_CE = 25
"""The last pilots of a CE whose waits give its estimated response time."""

ESTIMATED = "GlueCEStateEstimatedResponseTime"
WORST = "GlueCEStateWorstResponseTime"


@dataclass(frozen=True, slots=True)
class CeReply:
    """The answer of one CE's batch system, or why there was none."""

    ce: str
    information: CeInformation | None
    problem: str = ""


def response_times(waits: Sequence[PilotWait], now: float) -> dict[str, tuple[int, int]]:
    """CE → (median, longest) wait in seconds of its last pilots. `waits`: newest first.

    A pilot that still waits has waited at least until now. Without it a CE where no pilot ever starts would have no
    estimate.
    """
    by_ce: dict[str, list[float]] = {}
    for ce, submitted, started in waits:
        of_ce = by_ce.setdefault(ce, [])
        if len(of_ce) < WAITS_PER_CE:
            of_ce.append(max(0.0, (now if started is None else started) - submitted))
    return {ce: (int(median(seconds)), int(max(seconds))) for ce, seconds in by_ce.items()}


def with_response_times(information: CeInformation, times: tuple[int, int] | None) -> CeInformation:
    """The information with the waits of our own pilots, where the batch system has no estimate.

    Without such pilots the estimate is 0 if processors are free and no job waits; otherwise there is none.
    """
    known = information.attributes
    if ESTIMATED in known:
        return information
    is_idle = known.get("GlueCEStateWaitingJobs") == 0 and known.get("GlueCEStateFreeCPUs", 0) != 0
    if times is None and is_idle:
        times = 0, 0
    if times is None:
        return information
    return replace(information, attributes={**known, ESTIMATED: times[0], WORST: times[1]})


@dataclass(frozen=True, slots=True)
class ProblemChange:
    """The problem of a CE's information has begun or ended. Empty: no problem."""

    ce: str
    old: str
    new: str


def store_answers(pool: Pool, tx: Transaction, answers: Sequence[CeReply], now: float) -> list[ProblemChange]:
    """Store answers in one transaction. Returns the problems that begin or end; each has an event.

    Only the instant is written where nothing else has changed.
    """
    problems = ce_information.problems(tx.connection, [answer.ce for answer in answers])
    renewed: list[tuple[str, CeInformation]] = []
    changed: dict[str, bool] = {}
    changes: list[ProblemChange] = []
    for answer in answers:
        if answer.problem != problems.get(answer.ce, ""):
            changes.append(ProblemChange(answer.ce, problems.get(answer.ce, ""), answer.problem))
        if answer.information is None:
            continue
        before = pool.ces.information.get(answer.ce)
        facts = _with_known_parts(answer.information, before)
        if before is not None and _is_same(facts, before):
            renewed.append((answer.ce, facts))
            changed[answer.ce] = False
        else:
            changed[answer.ce] = before is None or facts.host_classes is not before.host_classes
            ce_information.save(tx.connection, answer.ce, facts, hosts=changed[answer.ce])
        tx.put(pool.ces.information, answer.ce, facts)
    if renewed:
        ce_information.renew(tx.connection, renewed)
    for change in changes:
        ce_information.save_problem(tx.connection, change.ce, change.new, now)
        _record(pool.ids, tx, change, now)
    if changed:
        pool.peers.publish(tx, PeerUpdate(information=changed))
    return changes


def _with_known_parts(facts: CeInformation, before: CeInformation | None) -> CeInformation:
    """The facts, with the objects of `before` in place of equal ones: caches compare by identity."""
    if before is None:
        return facts
    attributes = before.attributes if _is_equal(facts.attributes, before.attributes) else facts.attributes
    same_hosts = facts.host_classes == before.host_classes
    return replace(
        facts,
        attributes=attributes,
        host_classes=before.host_classes if same_hosts else facts.host_classes,
    )


def _is_equal(left: Mapping[str, object], right: Mapping[str, object]) -> bool:
    """Whether all values are equal and of the same type: 1, 1.0 and true are different values of an ad."""
    return left == right and all(type(value) is type(right[name]) for name, value in left.items())


def _is_same(facts: CeInformation, before: CeInformation) -> bool:
    return (
        facts.attributes is before.attributes
        and facts.host_classes is before.host_classes
        and facts.homogeneous is before.homogeneous
    )


def forget(pool: Pool, tx: Transaction, ces: Sequence[str]) -> None:
    """Delete the facts about CEs that the policy no longer has."""
    ce_information.delete(tx.connection, ces)
    for ce in ces:
        tx.delete(pool.ces.information, ce)
    pool.peers.publish(tx, PeerUpdate(information=dict.fromkeys(ces, True)))


def _record(ids: IdAllocators, tx: Transaction, change: ProblemChange, now: float) -> None:
    text = f"information: {change.new}" if change.new else "information again"
    record(
        tx.connection,
        ids.events,
        at=now,
        kind="ce",
        actor=SERVER,
        detail=f"CE {change.ce}: {text}",
        old=change.old and "no information",
        new=change.new and "no information",
    )
