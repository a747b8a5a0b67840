"""Answers to `why`, computed from a snapshot of the queues and the known offers.

The writer's thread takes the snapshot, which is short. Another thread computes the answer from the copies, with the
same predicate that matches jobs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from pilotage.core.brokering.ce_ad import CeAd
from pilotage.core.ids import JobId, QueueId
from pilotage.core.jobs.description import JobDescription
from pilotage.core.jobs.states import CONFIRMED, FINAL, WITH_USE, JobState
from pilotage.core.pilots.backoff import Pause
from pilotage.core.policy import Policy
from pilotage.core.queues.identity import QueueIdentity
from pilotage.core.queues.indexed_queue import IndexedQueue
from pilotage.core.queues.limits import Limit, LimitStatus
from pilotage.core.queues.offer_history import KnownOffer, refusals
from pilotage.core.queues.rank import rank
from pilotage.core.queues.wait_reason import COMPARED, Reason, WaitAnalysis, WaitVerdict, limit_text
from pilotage.core.queues.what_if import Buckets, unblocks
from pilotage.core.sites import SiteState
from pilotage.services.jobs import parallel
from pilotage.services.jobs.payload import stored_description
from pilotage.services.matching import known_offers
from pilotage.services.pool.records import DirectorNote, RecordedReason
from pilotage.services.pool.state import Pool
from pilotage.services.why import job_wording, needs_wording, wording
from pilotage.services.why.requirement_refusals import misspelt, requirement_refusals
from pilotage.store.engine.connection import Connection
from pilotage.store.tables import ces, listing, submissions, wait_reasons
from pilotage.store.tables.ces import CeSwitch
from pilotage.store.writer.transaction import Transaction
from pilotage.wire import why as wire
from pilotage.wire.jobs import JobSummary

MAX_COUNTED_JOBS = 10_000
"""Jobs ahead of a job in its queue are counted up to this number."""
MAX_HISTORY_ENTRIES = 50
MAX_OPENINGS = 20

RECORD_PERIOD = 30.0
"""Seconds between two recordings of the history. A wait began at most this long before its first entry."""


_ASKED_OF_CES = frozenset({Reason.NEEDS, Reason.NO_OFFER, Reason.CE})
"""Reasons with which the Requirements may be the cause."""
_OUTWEIGHED_BY_QUEUES = frozenset({Reason.PILOT, Reason.SLOTS, Reason.CE})
"""Reasons that concern a job only after the jobs before it."""


def _no_ad(name: str) -> CeAd | None:
    return None


@dataclass(slots=True)
class WaitSnapshot:
    """Copies taken in the writer's thread, from which another thread computes answers."""

    analysis: WaitAnalysis
    policy: Policy
    limits: Mapping[tuple[str, str, str, str], LimitStatus]
    directors: Mapping[str, DirectorNote]
    recorded_reasons: Mapping[QueueId, RecordedReason]
    closed_sites: Mapping[str, str]
    """Sites that an administrator has taken down → a sentence that tells so."""
    ce_ad: Callable[[str], CeAd | None] = _no_ad
    """The ad of a CE; for the thread that computes answers."""


def take_snapshot(
    pool: Pool,
    tx: Transaction,
    now: float,
    turn: known_offers.Turn,
    closed_ces: Mapping[str, str] | None = None,
) -> WaitSnapshot:
    """Call in the writer's thread. The thread that uses the snapshot queries the index through `turn`.

    `closed_ces`: CE → why no pilots are submitted there now.
    """
    analysis = replace(known_offers.survey(pool, tx, now, turn), closed_ces=closed_ces or {})
    closed = {limit.key: limit for limits in analysis.closed.values() for limit in limits}
    statuses = {key: pool.offers.limits.limiter.status(limit, now) for key, limit in closed.items()}
    return WaitSnapshot(
        analysis,
        pool.policy,
        statuses,
        dict(pool.provisioning.directors),
        dict(pool.queues.recorded_reasons or {}),
        {site: row.text for site, row in pool.offers.site_states.items() if row.state is SiteState.DOWN},
        partial(pool.ce_ad, now=now),
    )


# --- jobs


def why_job(snapshot: WaitSnapshot | None, connection: Connection, job: JobSummary, now: float) -> wire.Why:
    """The answer for one job. `snapshot` may be None for a job that does not wait: such a job needs no analysis."""
    if job.state != JobState.WAITING or snapshot is None:
        return _not_waiting(connection, job, now)
    facts = listing.job_facts(connection, job.id)
    description = stored_description(facts, job.id) if facts else None
    answer = why_queue(
        snapshot, connection, QueueId(job.queue), now, since=job.submitted, description=description
    )
    answer.job, answer.state = job.id, job.state
    if answer.reason:
        higher, older = wait_reasons.count_ahead(
            connection, QueueId(job.queue), job.user_priority, JobId(job.id), MAX_COUNTED_JOBS
        )
        first = answer.standings[0] if answer.standings else None
        others = (first.others, first.queues - 1) if first else (0, 0)
        answer.in_queue = wire.PlaceInQueue(higher, older, *others)
        if answer.reason in _OUTWEIGHED_BY_QUEUES:
            answer.summary = job_wording.after_others(answer.in_queue) + answer.summary
    return answer


def being_created(job: int, submission: int) -> wire.Why:
    """The answer for a job of an accepted submission that has no row yet."""
    summary = job_wording.being_created(job, submission)
    return wire.Why(summary, job=job, state=str(JobState.SUBMITTING))


def _not_waiting(connection: Connection, job: JobSummary, now: float) -> wire.Why:
    until = None
    if job.state in FINAL:
        summary, advice = job_wording.ended(job)
    elif job.state == JobState.RESCHEDULED:
        until = wait_reasons.not_before(connection, JobId(job.id))
        summary, advice = job_wording.rescheduled(job, until, now)
    elif job.state in WITH_USE:
        facts = listing.job_facts(connection, job.id)
        limit = stored_description(facts, job.id).memory if facts else 0
        summary, advice = job_wording.running(job, limit, now)
    elif job.state in CONFIRMED or job.state == JobState.MATCHED:
        summary, advice = job_wording.held(job)
    elif job.state == JobState.BLOCKED:
        summary, advice = job_wording.blocked(job, parallel.explain(connection, job.submission))
    elif job.state == JobState.HELD:
        summary, advice = job_wording.held_back(job)
    else:
        summary, advice = f"job {job.id} is {job.state}", ""
    return wire.Why(summary, advice, job=job.id, state=job.state, until=until, queue=job.queue, use=job.use)


# --- queues


def why_queue(
    snapshot: WaitSnapshot,
    connection: Connection,
    queue: QueueId,
    now: float,
    *,
    since: float | None = None,
    description: JobDescription | None = None,
) -> wire.Why:
    """The answer for a queue, which must exist.

    For one of its jobs, `since` is the time since which it has waited, and `description` is its description.
    """
    analysis = snapshot.analysis
    entry = next((entry for entry in analysis.entries if entry.id == queue), None)
    history = _history(connection, queue)
    if entry is None or not entry.waiting:
        identity = entry.identity if entry else submissions.queue_identity(connection, queue)
        needs = needs_wording.needs(identity, description) if identity else {}
        return wire.Why(f"no job waits in queue {queue}", queue=queue, needs=needs, history=history)
    began = _waiting_since(snapshot, connection, entry, since, now)
    verdict = analysis.verdict(entry, began)
    fitting = analysis.fitting(entry)
    answer = wire.Why(
        summary="",
        reason=str(verdict.reason),
        detail=verdict.detail,
        queue=queue,
        needs=needs_wording.needs(entry.identity, description),
        waiting=entry.waiting,
        fitting=len(fitting),
        history=history,
    )
    if verdict.reason is Reason.NEEDS:
        _add_refusals(answer, snapshot, entry.identity)
    elif fitting and verdict.reason is not Reason.MEMBERSHIP:
        _add_standings(answer, snapshot, connection, entry, fitting, verdict.places)
    if verdict.reason in _ASKED_OF_CES:
        answer.requirements = requirement_refusals(
            entry.identity, snapshot.policy, analysis.known, snapshot.ce_ad, now
        )
    offers = [analysis.known[place].offer for place in verdict.places]
    answer.summary, answer.advice = wording.describe_verdict(
        verdict, entry, answer, snapshot.policy, offers, snapshot.closed_sites, now
    )
    answer.advice = misspelt(answer.requirements) or answer.advice
    return answer


def _waiting_since(
    snapshot: WaitSnapshot, connection: Connection, entry: IndexedQueue, since: float | None, now: float
) -> float:
    """The time from which pilots' requests count for the verdict: the start of the wait.

    The history gives it; without an entry, `since` or the oldest waiting job. Requests before the oldest waiting job
    prove nothing about the queue.
    """
    recorded = snapshot.recorded_reasons.get(entry.id)
    if recorded is not None and recorded.reason:
        return _at_least_oldest_job(connection, entry, recorded.began - RECORD_PERIOD)
    if since is not None:
        return since
    oldest = wait_reasons.waiting_since(connection, entry.id, entry.first_waiting())
    return now if oldest is None else oldest


def _at_least_oldest_job(connection: Connection, entry: IndexedQueue, began: float) -> float:
    """`began`, or the time since which the oldest job of the queue waits if that is later."""
    oldest = wait_reasons.waiting_since(connection, entry.id, entry.first_waiting())
    return began if oldest is None else max(began, oldest)


def _add_refusals(answer: wire.Why, snapshot: WaitSnapshot, identity: QueueIdentity) -> None:
    """Add the conditions that refuse the queue at each site, and the single changes that would make it fit."""
    matching = snapshot.policy.matching
    known = snapshot.analysis.known
    buckets = Buckets(matching.cpu_buckets, matching.memory_buckets, matching.disk_buckets)
    for refusal in refusals(identity, known):
        conditions = {str(condition): count for condition, count in refusal.conditions.items()}
        takes = {str(condition): count for condition, count in refusal.takes.items() if count}
        answer.refused.append(wire.SiteRefusal(refusal.site, refusal.known, conditions, takes))
    for opening in unblocks(identity, known, buckets)[:MAX_OPENINGS]:
        change = opening.change
        answer.openings.append(
            wire.Opening(change.attribute, str(change.value), change.text, opening.slots, dict(opening.sites))
        )


def _add_standings(
    answer: wire.Why,
    snapshot: WaitSnapshot,
    connection: Connection,
    entry: IndexedQueue,
    fitting: Sequence[int],
    first: Sequence[int],
) -> None:
    """For a queue that fits known offers, add its rank in each draw, the closed limits and the pilots per CE.

    `fitting` and `first` are indexes into the known offers. Offers in `first`, which gave the verdict, are listed
    first.
    """
    analysis = snapshot.analysis
    closed: dict[tuple[str, str, str, str], Limit] = {}
    unlimited = []
    for place in fitting:
        limits = analysis.limits_on(entry, analysis.known[place])
        closed |= {limit.key: limit for limit in limits}
        if not limits:
            unlimited.append(place)
    for place in sorted(unlimited[:COMPARED], key=lambda place: place not in first):
        answer.standings.append(_standing(analysis, entry, place))
    for key, limit in sorted(closed.items()):
        status = snapshot.limits[key]
        answer.limits.append(wire.ClosedLimit(limit_text(limit), status.running, limit.running, status.wait))
    sites = {analysis.known[place].offer.ce: analysis.known[place].offer.site for place in fitting}
    for ce, site in sorted(sites.items()):
        answer.pilots.append(_pilots(connection, ce, site, snapshot.directors.get(ce), entry.id))


def _standing(analysis: WaitAnalysis, entry: IndexedQueue, place: int) -> wire.Standing:
    known: KnownOffer = analysis.known[place]
    candidates = analysis.draw_candidates(place).entries
    standing = rank(entry, candidates, analysis.rule)
    return wire.Standing(
        site=known.offer.site,
        ce=known.offer.ce,
        processors=known.offer.processors,
        memory=known.offer.memory,
        cpu_time=known.offer.cpu_time,
        possible=known.possible,
        takes=known.takes,
        higher_buckets=[wire.HigherBucket(b.cpu_time, b.queues, b.jobs) for b in standing.buckets],
        chance=standing.chance,
        queues=standing.queues,
        priority=entry.priority,
        ours=standing.ours,
        ahead=standing.ahead,
        rivals=[wire.Rival(r.owner, r.group, r.priority, r.ratio, r.waiting) for r in standing.rivals],
        serves=needs_wording.reserved_for(known.offer),
        others=sum(other.waiting for other in candidates if other.id != entry.id),
    )


def _pilots(
    connection: Connection, ce: str, site: str, note: DirectorNote | None, queue: QueueId
) -> wire.CePilots:
    live = wait_reasons.pilot_states(connection, ce)
    giving_way = wait_reasons.count_yielding_pilots(connection, ce)
    off = ces.by_name(connection, ce).switch is not CeSwitch.ON
    if note is None:
        return wire.CePilots(ce, site, live, 0, 0, 0, 0.0, giving_way=giving_way, switched_off=off)
    pause = note.pauses.get(queue, Pause())
    until = max(note.not_before, pause.until)
    cores = (note.cores, note.used, note.ordered)
    return wire.CePilots(ce, site, live, *cores, until, pause.pilots, giving_way, note.budget, off)


def _history(connection: Connection, queue: QueueId) -> list[wire.Waited]:
    rows = wait_reasons.history(connection, queue, MAX_HISTORY_ENTRIES)
    ends: list[float | None] = [row.since for row in rows[1:]]
    return [
        wire.Waited(row.reason, row.detail, row.since, until)
        for row, until in zip(rows, [*ends, None], strict=False)
    ]


def main_reason(
    snapshot: WaitSnapshot, connection: Connection, entry: IndexedQueue, now: float
) -> WaitVerdict:
    """The verdict alone, as the history records it."""
    recorded = snapshot.recorded_reasons.get(entry.id)
    began = (recorded.began if recorded is not None and recorded.reason else now) - RECORD_PERIOD
    verdict = snapshot.analysis.verdict(entry, began)
    if verdict.reason not in (Reason.SHARE, Reason.SLOTS) or not (verdict.places or verdict.detail):
        # No pilot has asked since `began`, so none has since a later time: skip the query per queue.
        return verdict
    exact = _at_least_oldest_job(connection, entry, began)
    return verdict if exact == began else snapshot.analysis.verdict(entry, exact)
