"""The sentences of `why`: what is the case, and what to do about it."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime

from pilotage.core.jobs.description import JobDescription
from pilotage.core.pilots.wall_time import cpu_time_of_new_pilot, kept, wall_for
from pilotage.core.policy import Ce, Policy
from pilotage.core.queues.fit import Condition, Offer
from pilotage.core.queues.identity import QueueIdentity
from pilotage.core.queues.indexed_queue import IndexedQueue
from pilotage.core.queues.wait_reason import Reason, WaitVerdict
from pilotage.wire.people import JobSummary
from pilotage.wire.waiting import ClosedLimit, Opening, Why

CONDITIONS: Mapping[str, str] = {
    Condition.OWNER: "the pilots there serve other owners only",
    Condition.SETUP: "it asks for another setup",
    Condition.CPU_TIME: "it asks for more CPU time than a pilot there has left",
    Condition.PILOT_TYPE: "it asks for another type of pilot",
    Condition.SITE: "it is for other sites",
    Condition.BANNED_SITE: "it bans the site itself",
    Condition.GRID_CE: "it is for other CEs",
    Condition.PLATFORM: "it asks for another platform",
    Condition.PROCESSORS: "it asks for more processors",
    Condition.MEMORY: "it asks for more memory",
    Condition.JOB_TYPE: "its job type is not taken there",
    Condition.REQUIREMENTS: "its Requirements are not true there",
}
"""What a queue falls at, as a person says it; closures and tags are told by name."""

NEVER = "no such job starts at all until an administrator changes that (`pilotage policy apply`)"
"""Of a limit of 0 running jobs."""

# --- jobs that do not wait


def ended(job: JobSummary) -> tuple[str, str]:
    reason = f": {job.reason}" if job.reason else ""
    advice = f"`pilotage status {job.id}` tells more" if job.state == "Failed" else ""
    return f"job {job.id} has ended and waits for nothing: it is {job.state}{reason}", advice


def rescheduled(job: JobSummary, until: float | None, now: float) -> tuple[str, str]:
    reason = f" ({job.reason})" if job.reason else ""
    summary = f"a try at job {job.id} was lost or has failed{reason}; it goes back to its queue"
    if until is not None:
        seconds = max(0.0, until - now)
        when = datetime.fromtimestamp(until, UTC)
        summary += f" in {seconds:.0f} s, at {when:%Y-%m-%d %H:%M:%S} UTC"
    return summary, f"`pilotage status {job.id} --events` shows what happened to it"


def held(job: JobSummary) -> tuple[str, str]:
    node = f" ({job.hostname})" if job.hostname else ""
    where = f"pilot {job.pilot} at site {job.site}{node} has it"
    if job.state == "Matched":
        return f"job {job.id} was offered to a pilot and is about to start: {where}", ""
    if job.state == "Stalled":
        return f"job {job.id} does not wait, but its pilot is silent: {where}", (
            "if the pilot is not heard until its lease is over, the job is tried again"
        )
    return f"job {job.id} does not wait: it is {job.state}, {where}", ""


# --- queues


def needs(queue: QueueIdentity, asked: JobDescription | None = None) -> dict[str, str]:
    """What the jobs of a queue ask for, as names and values; `asked` is one of them, with its own numbers."""
    cpu_time, memory = (asked.cpu_time, asked.memory) if asked else (None, None)
    found = {
        "owner": queue.owner,
        "group": queue.group,
        "setup": queue.setup,
        "CPU time": _step(queue.cpu_time, cpu_time, "s"),
        "memory": _step(queue.memory, memory, "MB") if queue.memory else "",
        "processors": str(queue.processors),
        "job type": queue.job_type,
        "pilots": "generic only" if queue.force_generic else _listed(queue.pilot_types),
        "sites": _listed(queue.sites),
        "banned sites": _listed(queue.banned_sites),
        "CEs": _listed(queue.grid_ces),
        "platforms": _listed(queue.platforms),
        "tags": _listed(queue.tags),
        "requirements": queue.requirements,
    }
    return {name: value for name, value in found.items() if value}


def _step(step: int, asked: int | None, unit: str) -> str:
    """The step that a need has moved to, and from which number, if that is known."""
    if asked is None:
        return f"of the step {step} {unit}"
    if asked == step:
        return f"{step} {unit}"
    if not asked:
        return f"{step} {unit} (none asked for)"
    if asked < step:
        return f"{step} {unit} (the next step above the {asked} {unit} asked for)"
    return f"{step} {unit} (the highest step; {asked} {unit} asked for)"


def of_verdict(
    verdict: WaitVerdict,
    entry: IndexedQueue,
    answer: Why,
    policy: Policy,
    offers: Sequence[Offer],
    now: float,
) -> tuple[str, str]:
    """(summary, advice) for a queue with waiting jobs. `offers` are those of the verdict."""
    if verdict.reason is Reason.MEMBERSHIP:
        return _membership(entry.identity, policy)
    if verdict.reason is Reason.NEEDS:
        return _needs(verdict, entry.identity, answer, policy, offers)
    if verdict.reason is Reason.LIMIT:
        return _limit(verdict, answer, now)
    summary, advice = _SENTENCES[verdict.reason](verdict, answer)
    if verdict.reason is Reason.SLOTS:
        advice = _back_off(answer, now) or advice
    return summary, advice


def _back_off(answer: Why, now: float) -> str:
    """When pilots are started again where the last ones were of no use; "": none of this holds them back."""
    latest = max(answer.pilots, key=lambda ce: ce.not_before, default=None)
    if latest is None or latest.not_before <= now:
        return ""
    again = f"in {latest.not_before - now:.0f} s"
    if not latest.in_vain:
        return (
            f"the last pilots never called home, or had no job; new ones are tried {again}:"
            " `pilotage pilot list --all` tells their last words"
        )
    pilots = "pilot that was" if latest.in_vain == 1 else f"{latest.in_vain} pilots that were"
    return (
        f"the last {pilots} started for it at CE {latest.ce} left without a job; the next one is tried {again}:"
        " their nodes may have less than the CE is said to have"
    )


def _membership(queue: QueueIdentity, policy: Policy) -> tuple[str, str]:
    if queue.group in policy.groups:
        summary = f"the policy no longer has {queue.owner} in the group {queue.group}"
    else:
        summary = f"the policy no longer has the group {queue.group}"
    return f"{summary}: its jobs stay, and none of them starts", (
        "they start again when an administrator puts that back (`pilotage policy apply`);"
        " or kill them and submit them with another group"
    )


def _draining(verdict: WaitVerdict, answer: Why) -> tuple[str, str]:
    return "the server is about to stop and gives out no new work", "they wait for its next start"


def _no_offer(verdict: WaitVerdict, answer: Why) -> tuple[str, str]:
    return "no pilot has asked for work in the last day, and no CE of known capacity is there", (
        "`pilotage site list` shows sites and CEs: the policy may have none, or the server has just started"
    )


def _needs(
    verdict: WaitVerdict, queue: QueueIdentity, answer: Why, policy: Policy, offers: Sequence[Offer]
) -> tuple[str, str]:
    conditions = [condition for condition in verdict.detail.split(", ") if condition]
    closures = _closures(policy, offers) if Condition.SITE_CLOSED in conditions else {}
    said = {**CONDITIONS, **_tags(queue, offers), **_too_short(queue, policy, offers)}
    parts = [*closures, *(said[condition] for condition in conditions if condition in said)]
    summary = f"no node that is known fits: {'; '.join(parts)}"
    if answer.openings:
        best = answer.openings[0]
        where = f"at site {next(iter(best.sites))}" if len(best.sites) == 1 else f"at {len(best.sites)} sites"
        return summary, f"{_with(best)}: {_many(best.slots, 'slot')} {where}"
    if conditions == [Condition.SITE_CLOSED]:
        return summary, "; ".join(dict.fromkeys(closures.values()))
    if conditions == [Condition.REQUIRED_TAGS] and (never := _serving_nobody(offers)):
        return summary, never
    if conditions == [Condition.CPU_TIME] and (longer := _longer_wall(queue, policy, offers)):
        return summary, longer
    return summary, "no single change to the job opens anything: see what refuses it at each site"


def _closures(policy: Policy, offers: Sequence[Offer]) -> dict[str, str]:
    """Why the policy lets nothing start at these offers, each with what would help."""
    found: dict[str, str] = {}
    for offer in offers:
        site = policy.sites.get(offer.site)
        if site is None:
            found[f"the site {offer.site} is no longer in the policy"] = (
                "it may start when an administrator puts the site back (`pilotage policy apply`), or at another one"
            )
        elif site.banned:
            found[f"the site {offer.site} is banned in the policy"] = (
                "it may start when an administrator lifts the ban; or send it to other sites"
            )
        elif offer.ce not in policy.ces:
            found[f"the CE {offer.ce} is no longer in the policy"] = (
                "it may start when an administrator puts the CE back (`pilotage policy apply`), or at another one"
            )
    return found


def _tags(queue: QueueIdentity, offers: Sequence[Offer]) -> dict[str, str]:
    """What is said of tags, by condition: which ones the job has too many, or too few."""
    missing = frozenset[str]().union(*(queue.tags - offer.tags for offer in offers))
    asked = frozenset[str]().union(*(offer.required_tags - queue.tags for offer in offers))
    offered = "is not offered" if len(missing) == 1 else "are not offered"
    return {
        Condition.TAGS: f"it asks for {_tags_named(missing)}, which {offered}",
        Condition.REQUIRED_TAGS: f"it lacks {_tags_named(asked)}, without which nothing starts there",
    }


def _short_ces(queue: QueueIdentity, policy: Policy, offers: Sequence[Offer]) -> dict[str, Ce]:
    """The CEs of these offers whose new pilots have less CPU time for jobs than this queue asks for."""
    known = {offer.ce: policy.ces[offer.ce] for offer in offers if offer.ce in policy.ces}
    return {
        name: ce
        for name, ce in sorted(known.items())
        if cpu_time_of_new_pilot(ce.wall, ce.cpu_power) < queue.cpu_time
    }


def _too_short(queue: QueueIdentity, policy: Policy, offers: Sequence[Offer]) -> dict[str, str]:
    """What is said of CPU time where no pilot that a CE can start has enough of it."""
    parts = []
    for name, ce in _short_ces(queue, policy, offers).items():
        power = f" (cpu_power {ce.cpu_power:g})" if ce.cpu_power != 1 else ""
        left = cpu_time_of_new_pilot(ce.wall, ce.cpu_power)
        parts.append(
            f"CE {name} gives pilots {ce.wall:g} s of wall time, {kept(ce.wall):g} s of which are kept for their start"
            f" and end, so that {left:g} s of CPU time{power} are left"
        )
    if not parts:
        return {}
    return {Condition.CPU_TIME: f"{'; '.join(parts)}; the CPU bucket of this queue is {queue.cpu_time} s"}


def _longer_wall(queue: QueueIdentity, policy: Policy, offers: Sequence[Offer]) -> str:
    short = _short_ces(queue, policy, offers)
    walls = [f"ces.{name}.wall = {wall_for(queue.cpu_time, ce.cpu_power)}" for name, ce in short.items()]
    return (
        f"an administrator can give pilots more time (`pilotage policy apply`): {', '.join(walls)}"
        if walls
        else ""
    )


def _tags_named(tags: frozenset[str]) -> str:
    return f"the {'tag' if len(tags) == 1 else 'tags'} {_listed(tags)}"


def _serving_nobody(offers: Sequence[Offer]) -> str:
    """What to say when CEs require tags that they do not offer: to have the tag would not help either."""
    ces = {offer.ce: offer.required_tags - offer.tags for offer in offers}
    if not all(ces.values()):
        return ""
    return "; ".join(
        f"CE {ce} requires {_tags_named(tags)}, which it does not offer: it serves nobody until an administrator"
        " mends its tags (`pilotage policy apply`)"
        for ce, tags in sorted(ces.items())
    )


def _with(opening: Opening) -> str:
    named = opening.attribute in ("memory", "processors", "cpu_time", "setup", "job_type")
    return f"with {opening.text}" if named else opening.text


def _limit(verdict: WaitVerdict, answer: Why, now: float) -> tuple[str, str]:
    limits = answer.limits
    close = "a limit of the policy closes" if len(limits) == 1 else "limits of the policy close"
    summary = f"{close} what it fits: {verdict.detail}"
    advice = list(dict.fromkeys(_opens(limit, now) for limit in limits))
    return summary, advice[0] if len(advice) == 1 else "each line `limit` says when it opens again"


def _opens(limit: ClosedLimit, now: float) -> str:
    """What lets the next job start under a closed limit."""
    if limit.most == 0:
        return NEVER
    seconds = math.ceil(limit.wait)
    if limit.most is None or limit.running < limit.most:
        when = datetime.fromtimestamp(now + limit.wait, UTC)
        return f"the next one may start in {seconds} s, at {when:%Y-%m-%d %H:%M:%S} UTC"
    jobs = "the running job ends" if limit.running == 1 else f"one of the {limit.running:,} running jobs ends"
    later = f", in {seconds} s at the earliest" if limit.wait else ""
    return f"it starts when {jobs}{later}"


def _background(verdict: WaitVerdict, answer: Why) -> tuple[str, str]:
    return "only UserPriority 0 waits in this queue: it waits until no other queue of the same owner fits", (
        "a UserPriority of 1 or more takes part in the draw"
    )


def _cpu_bucket(verdict: WaitVerdict, answer: Why) -> tuple[str, str]:
    buckets = answer.standings[0].higher_buckets if answer.standings else []
    queues, jobs = sum(b.queues for b in buckets), sum(b.jobs for b in buckets)
    counted = f" ({_many(jobs, 'job')} in {_many(queues, 'queue')})" if queues else ""
    return f"jobs with more CPU time go first{counted}: the highest bucket now is {verdict.detail}", (
        'the draw rule is "document": short jobs wait while longer ones fit the same nodes'
    )


def _share(verdict: WaitVerdict, answer: Why) -> tuple[str, str]:
    if not answer.standings:
        return "others were drawn", ""
    first = answer.standings[0]
    many = "1 other has" if first.ahead == 1 else f"{first.ahead:,} others have"
    has = many if first.ahead else "nobody has"
    return (
        f"it takes part in the draw with {_many(first.queues - 1, 'other queue')}; {has} a larger share",
        f"each time such a node asks, it is drawn with a chance of {percent(first.chance)}",
    )


def _pilot(verdict: WaitVerdict, answer: Why) -> tuple[str, str]:
    return f"a pilot was asked for and has not called home yet (CE {verdict.detail})", ""


def _slots(verdict: WaitVerdict, answer: Why) -> tuple[str, str]:
    if verdict.detail:
        return f"it fits, but no node that is free for it has asked: the {verdict.detail} only", (
            "a pilot that gives way now makes room for the owner whose turn it is"
            if any(ce.giving_way for ce in answer.pilots)
            else "a pilot whose node isolates nobody serves one owner at a time; whenever its quantum is over"
            " (`ces.NAME.quantum`), all owners take part in the draw"
        )
    full = [ce for ce in answer.pilots if ce.cores and ce.used >= ce.cores]
    if full:
        cores, pilots = sum(ce.cores for ce in full), sum(sum(ce.pilots.values()) for ce in full)
        whose = f"{_many(pilots, 'pilot')} {'has' if pilots == 1 else 'have'}"
        what = "the only core" if cores == 1 else f"all {cores:,} cores"
        return (
            f"it fits, but no node with room for it has asked: {whose} {what} of {', '.join(ce.ce for ce in full)}",
            "it starts when there is room",
        )
    return "it fits, but no such node has asked since it began to wait", ""


_SENTENCES: Mapping[Reason, Callable[[WaitVerdict, Why], tuple[str, str]]] = {
    Reason.DRAINING: _draining,
    Reason.NO_OFFER: _no_offer,
    Reason.BACKGROUND: _background,
    Reason.CPU_BUCKET: _cpu_bucket,
    Reason.SHARE: _share,
    Reason.PILOT: _pilot,
    Reason.SLOTS: _slots,
}


def served(offer: Offer) -> str:
    """Whom alone pilots with such an offer serve: an owner, or on whose behalf they run; "": everybody."""
    if offer.only_owner is not None:
        return offer.only_owner
    if offer.pilot_type != "private":
        return ""
    return ", ".join(
        one.group if one.job_sharing else f"{one.owner} ({one.group})" for one in offer.identities
    )


def percent(part: float) -> str:
    """Such as "25 %", "0.4 %", "< 0.01 %"."""
    if 0 < part < 0.0001:
        return "< 0.01 %"
    return f"{part * 100:.3g} %"


def _listed(names: frozenset[str]) -> str:
    return ", ".join(sorted(names))


def _many(number: int, noun: str) -> str:
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"
