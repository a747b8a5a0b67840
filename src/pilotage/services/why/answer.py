"""Why a job waits: the answer for people, made of a survey of the queues and the known offers.

The survey is taken in the writer's thread and is short; everything else happens in another thread on copies, and asks
the predicate that matches.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pilotage.core.ids import JobId, QueueId
from pilotage.core.jobs.description import JobDescription
from pilotage.core.jobs.states import FINAL, HELD, JobState
from pilotage.core.pilots.backoff import Pause
from pilotage.core.policy import Policy
from pilotage.core.queues.identity import QueueIdentity
from pilotage.core.queues.indexed_queue import IndexedQueue
from pilotage.core.queues.limits import Limit, LimitStatus
from pilotage.core.queues.offer_history import KnownOffer, refusals
from pilotage.core.queues.rank import rank
from pilotage.core.queues.wait_reason import COMPARED, Reason, WaitAnalysis, WaitVerdict, in_words
from pilotage.core.queues.what_if import Buckets, unblocks
from pilotage.services.jobs.payload import stored_description
from pilotage.services.matching import known_offers
from pilotage.services.pool.records import DirectorNote, WaitedReason
from pilotage.services.pool.state import Pool
from pilotage.services.why import wording
from pilotage.store.engine.connection import Connection
from pilotage.store.tables import listing, submissions, wait_reasons
from pilotage.store.writer.transaction import Transaction
from pilotage.wire import waiting as wire
from pilotage.wire.people import JobSummary

COUNTED = 10_000
"""Jobs before one in its queue are counted up to this."""
HISTORY = 50
OPENINGS = 20

LOOKS = 30.0
"""Seconds between two entries of the history at least: a wait began at most so long before its first one."""


@dataclass(slots=True)
class WaitSnapshot:
    """What is copied in the writer's thread."""

    survey: WaitAnalysis
    policy: Policy
    hold_ups: Mapping[tuple[str, str, str, str], LimitStatus]
    directors: Mapping[str, DirectorNote]
    waited: Mapping[QueueId, WaitedReason]


def snapshot(pool: Pool, tx: Transaction, now: float, turn: known_offers.Turn) -> WaitSnapshot:
    """In the writer's thread; it is used in another one, which asks the index by `turn`."""
    survey = known_offers.survey(pool, tx, now, turn)
    closed = {limit.key: limit for limits in survey.closed.values() for limit in limits}
    held = {key: pool.limiter.hold_up(limit, now) for key, limit in closed.items()}
    return WaitSnapshot(survey, pool.policy, held, dict(pool.directors), dict(pool.waited or {}))


# --- jobs


def why_job(found: WaitSnapshot | None, connection: Connection, job: JobSummary, now: float) -> wire.Why:
    """`found` may be None for a job that does not wait: nothing is analysed then."""
    if job.state != JobState.WAITING or found is None:
        return _not_waiting(connection, job, now)
    facts = listing.job_facts(connection, job.id)
    asked = stored_description(facts, job.id) if facts else None
    answer = why_queue(found, connection, QueueId(job.queue), now, since=job.submitted, asked=asked)
    answer.job, answer.state = job.id, job.state
    if answer.reason:
        higher, older = wait_reasons.before_in_queue(
            connection, QueueId(job.queue), job.user_priority, JobId(job.id), COUNTED
        )
        answer.in_queue = wire.PlaceInQueue(higher, older)
    return answer


def still_being_made(job: int, submission: int) -> wire.Why:
    summary = (
        f"job {job} is still being made: submission {submission} is accepted, its jobs come one after another"
    )
    return wire.Why(summary, job=job, state=str(JobState.SUBMITTING))


def _not_waiting(connection: Connection, job: JobSummary, now: float) -> wire.Why:
    until = None
    if job.state in FINAL:
        summary, advice = wording.ended(job)
    elif job.state == JobState.RESCHEDULED:
        until = wait_reasons.not_before(connection, JobId(job.id))
        summary, advice = wording.rescheduled(job, until, now)
    elif job.state in HELD or job.state == JobState.MATCHED:
        summary, advice = wording.held(job)
    else:
        summary, advice = f"job {job.id} is {job.state}", ""
    return wire.Why(summary, advice, job=job.id, state=job.state, until=until, queue=job.queue)


# --- queues


def why_queue(
    found: WaitSnapshot,
    connection: Connection,
    queue: QueueId,
    now: float,
    *,
    since: float | None = None,
    asked: JobDescription | None = None,
) -> wire.Why:
    """The queue must be known. Of the job that is asked about, if it is one: since when it has waited, and what it
    `asked` for.
    """
    survey = found.survey
    entry = next((one for one in survey.entries if one.id == queue), None)
    history = _history(connection, queue)
    if entry is None or not entry.waiting:
        identity = entry.identity if entry else submissions.queue_identity(connection, queue)
        needs = wording.needs(identity, asked) if identity else {}
        summary = f"nothing waits in queue {queue}"
        return wire.Why(summary, queue=queue, needs=needs, history=history)
    began = _began(found, connection, entry, since, now)
    verdict = survey.verdict(entry, began)
    fitting = survey.fitting(entry)
    answer = wire.Why(
        summary="",
        reason=str(verdict.reason),
        detail=verdict.detail,
        queue=queue,
        needs=wording.needs(entry.identity, asked),
        waiting=entry.waiting,
        fitting=len(fitting),
        history=history,
    )
    if verdict.reason is Reason.NEEDS:
        _refused(answer, found, entry.identity)
    elif fitting and verdict.reason is not Reason.MEMBERSHIP:
        _placed(answer, found, connection, entry, fitting, verdict.places)
    spoken_of = [survey.known[place].offer for place in verdict.places]
    answer.summary, answer.advice = wording.of_verdict(verdict, entry, answer, found.policy, spoken_of, now)
    return answer


def _began(
    found: WaitSnapshot, connection: Connection, entry: IndexedQueue, since: float | None, now: float
) -> float:
    """Since when what asks counts for the queue: since it began to wait as the history has it, else for as long as
    what waits in it has. Takes from before the oldest job that waits say nothing of it.
    """
    known = found.waited.get(entry.id)
    if known is not None and known.reason:
        return _not_before_its_jobs(connection, entry, known.began - LOOKS)
    if since is not None:
        return since
    oldest = wait_reasons.waiting_since(connection, entry.id)
    return now if oldest is None else oldest


def _not_before_its_jobs(connection: Connection, entry: IndexedQueue, began: float) -> float:
    oldest = wait_reasons.waiting_since(connection, entry.id)
    return began if oldest is None else max(began, oldest)


def _refused(answer: wire.Why, found: WaitSnapshot, identity: QueueIdentity) -> None:
    matching = found.policy.matching
    known = found.survey.known
    buckets = Buckets(matching.cpu_buckets, matching.memory_buckets)
    for one in refusals(identity, known):
        conditions = {str(condition): count for condition, count in one.conditions.items()}
        takes = {str(condition): count for condition, count in one.takes.items() if count}
        answer.refused.append(wire.SiteRefusal(one.site, one.known, conditions, takes))
    for opening in unblocks(identity, known, buckets)[:OPENINGS]:
        change = opening.change
        answer.openings.append(
            wire.Opening(change.attribute, str(change.value), change.text, opening.slots, dict(opening.sites))
        )


def _placed(
    answer: wire.Why,
    found: WaitSnapshot,
    connection: Connection,
    entry: IndexedQueue,
    fitting: Sequence[int],
    first: Sequence[int],
) -> None:
    """Of a queue that fits something: who is before it there, what closes it, whether pilots come.

    The offers at the places `first`, which gave the verdict, stand first.
    """
    survey = found.survey
    closed: dict[tuple[str, str, str, str], Limit] = {}
    open_ones = []
    for place in fitting:
        limits = survey.limits_on(entry, survey.known[place])
        closed |= {limit.key: limit for limit in limits}
        if not limits:
            open_ones.append(place)
    for place in sorted(open_ones[:COMPARED], key=lambda place: place not in first):
        answer.standings.append(_standing(survey, entry, place))
    for key, limit in sorted(closed.items()):
        held = found.hold_ups[key]
        answer.limits.append(wire.ClosedLimit(in_words(limit), held.running, limit.running, held.wait))
    sites = {survey.known[place].offer.ce: survey.known[place].offer.site for place in fitting}
    for ce, site in sorted(sites.items()):
        answer.pilots.append(_pilots(connection, ce, site, found.directors.get(ce), entry.id))


def _standing(survey: WaitAnalysis, entry: IndexedQueue, place: int) -> wire.Standing:
    one: KnownOffer = survey.known[place]
    stands = rank(entry, survey.part(place).entries, survey.rule)
    return wire.Standing(
        site=one.offer.site,
        ce=one.offer.ce,
        processors=one.offer.processors,
        memory=one.offer.memory,
        cpu_time=one.offer.cpu_time,
        possible=one.possible,
        takes=one.takes,
        higher_buckets=[wire.HigherBucket(b.cpu_time, b.queues, b.jobs) for b in stands.buckets],
        chance=stands.chance,
        queues=stands.queues,
        priority=entry.priority,
        ours=stands.ours,
        ahead=stands.ahead,
        rivals=[wire.Rival(r.owner, r.group, r.priority, r.ratio, r.waiting) for r in stands.rivals],
        serves=wording.served(one.offer),
    )


def _pilots(
    connection: Connection, ce: str, site: str, note: DirectorNote | None, queue: QueueId
) -> wire.CePilots:
    live = wait_reasons.live_pilots(connection, ce)
    giving_way = wait_reasons.giving_way(connection, ce)
    if note is None:
        return wire.CePilots(ce, site, live, 0, 0, 0, 0.0, giving_way=giving_way)
    pause = note.pauses.get(queue, Pause())
    until = max(note.not_before, pause.until)
    return wire.CePilots(ce, site, live, note.cores, note.used, note.ordered, until, pause.pilots, giving_way)


def _history(connection: Connection, queue: QueueId) -> list[wire.Waited]:
    rows = wait_reasons.history(connection, queue, HISTORY)
    ends: list[float | None] = [row.since for row in rows[1:]]
    return [
        wire.Waited(row.reason, row.detail, row.since, until)
        for row, until in zip(rows, [*ends, None], strict=False)
    ]


def verdict_of(found: WaitSnapshot, connection: Connection, entry: IndexedQueue, now: float) -> WaitVerdict:
    """The main reason alone, as the history keeps it."""
    known = found.waited.get(entry.id)
    began = (known.began if known is not None and known.reason else now) - LOOKS
    verdict = found.survey.verdict(entry, began)
    if verdict.reason not in (Reason.SHARE, Reason.SLOTS) or not (verdict.places or verdict.detail):
        # Nothing has asked since, and so nothing has since later: the store need not be asked for each queue.
        return verdict
    exactly = _not_before_its_jobs(connection, entry, began)
    return verdict if exactly == began else found.survey.verdict(entry, exactly)
