"""The sentences of `why` about a task queue: a summary of the reason, and advice on the change that helps."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime

from pilotage.core.pilots.wall_time import (
    cpu_time_of_new_pilot,
    kept,
    wall_for,
    wall_for_job,
    wall_of_new_pilot,
)
from pilotage.core.plurals import plural
from pilotage.core.policy import Ce, Policy
from pilotage.core.queues.fit import Condition, Offer
from pilotage.core.queues.identity import QueueIdentity
from pilotage.core.queues.indexed_queue import IndexedQueue
from pilotage.core.queues.wait_reason import Reason, WaitVerdict
from pilotage.services.why.in_place_wording import IN_PLACE, unshared
from pilotage.services.why.needs_wording import REQUIREMENTS_REFUSED, listed, match_text_refused
from pilotage.wire.why import ClosedLimit, Opening, Why

CONDITIONS: Mapping[str, str] = {
    Condition.OWNER: "the pilots there run jobs of other owners only",
    Condition.BANNED_OWNER: "jobs of the owner are banned there",
    Condition.SETUP: "the requested setup is not offered",
    Condition.CPU_TIME: "the requested CPU time exceeds the time that a pilot has left",
    Condition.WALL_TIME: "the requested wall time exceeds the time that a pilot has left",
    Condition.PILOT_TYPE: "the requested type of pilot is not offered",
    Condition.SITE: "the job is restricted to other sites",
    Condition.BANNED_SITE: "the job bans the site",
    Condition.GRID_CE: "the job is restricted to other CEs",
    Condition.PLATFORM: "the requested platform is not offered",
    Condition.PROCESSORS: "more processors are requested than a node offers",
    Condition.MEMORY: "more memory is requested than a node offers",
    Condition.DISK: "more disk is requested than a node has free",
    Condition.JOB_TYPE: "the site does not accept the job type",
    Condition.FOLDER: "the CE does not share the folder of the job",
    Condition.ACCOUNT: "jobs in place run under the account of their owner, and pilots there have another account",
    Condition.NODE_FOLDER: "the node was found to have another folder at the path of the job's folder",
    Condition.REQUIREMENTS: REQUIREMENTS_REFUSED,
}
"""Condition that refuses the queue → sentence. Closed sites and tags have sentences of their own with the names."""


CLOSED_BY_ZERO = (
    "the limit allows 0 running jobs: nothing starts"
    " until an administrator raises it (`pilotage policy apply`)"
)
"""Advice for a limit of 0 running jobs."""


def describe_verdict(
    verdict: WaitVerdict,
    entry: IndexedQueue,
    answer: Why,
    policy: Policy,
    offers: Sequence[Offer],
    closed_sites: Mapping[str, str],
    now: float,
) -> tuple[str, str]:
    """(summary, advice) for a queue with waiting jobs. `offers` are the offers that gave the verdict."""
    if verdict.reason is Reason.MEMBERSHIP:
        return _membership(entry.identity, policy)
    if verdict.reason is Reason.NEEDS:
        return _needs(verdict, entry.identity, answer, policy, offers, closed_sites)
    if verdict.reason is Reason.LIMIT:
        return _limit(verdict, answer, now)
    summary, advice = _SENTENCES[verdict.reason](verdict, answer)
    if verdict.reason is Reason.CE and answer.pilots and all(ce.switched_off for ce in answer.pilots):
        return summary, _enable(answer)
    if verdict.reason in (Reason.CE, Reason.SLOTS):
        advice = _back_off(answer, now) or _exhausted_budgets(answer) or advice
    return summary, advice


def _enable(answer: Why) -> str:
    """CEs that are disabled or stopped get no pilot before somebody enables them."""
    words = "`pilotage ce show {0}` shows the cause; after it is mended, `pilotage ce enable {0}` lets pilots start"
    return "; ".join(words.format(ce.ce) for ce in answer.pilots)


def _back_off(answer: Why, now: float) -> str:
    """When the director starts the next pilot after useless ones; "" if it does not hold pilots back."""
    on = [ce for ce in answer.pilots if not ce.switched_off]
    latest = max(on, key=lambda ce: ce.not_before, default=None)
    if latest is None or latest.not_before <= now:
        return ""
    delay = f"in {latest.not_before - now:.0f} s"
    if not latest.in_vain:
        return (
            f"the last pilots never contacted the server, or found no job; the next one starts {delay};"
            " `pilotage pilot list --all` shows why they ended"
        )
    pilots = "pilot" if latest.in_vain == 1 else f"{latest.in_vain} pilots"
    return (
        f"the last {pilots} started for this queue at CE {latest.ce} ended without a job; the next one starts {delay};"
        " check that the nodes have the resources that the policy states for the CE"
    )


def _exhausted_budgets(answer: Why) -> str:
    """The budgets that allow no further pilot; "" if a CE has none such."""
    if not all(ce.budget for ce in answer.pilots):
        return ""
    return "; ".join(f"CE {ce.ce}: {ce.budget}" for ce in answer.pilots)


def _membership(queue: QueueIdentity, policy: Policy) -> tuple[str, str]:
    if queue.group in policy.groups:
        summary = f"the policy no longer has {queue.owner} in the group {queue.group}"
    else:
        summary = f"the policy no longer has the group {queue.group}"
    return f"{summary}: the jobs of this queue are kept, but none of them starts", (
        "an administrator can restore the membership (`pilotage policy apply`);"
        " or kill the jobs and submit them with another group"
    )


def _draining(verdict: WaitVerdict, answer: Why) -> tuple[str, str]:
    return (
        "the server is stopping and gives out no new work",
        "jobs start again after the server has restarted",
    )


def _no_offer(verdict: WaitVerdict, answer: Why) -> tuple[str, str]:
    return "no pilot has asked for work in the last day, and no CE has a known capacity", (
        "`pilotage site list` shows sites and CEs: the policy may have no CE, or the server has just started"
    )


def _needs(
    verdict: WaitVerdict,
    queue: QueueIdentity,
    answer: Why,
    policy: Policy,
    offers: Sequence[Offer],
    closed_sites: Mapping[str, str],
) -> tuple[str, str]:
    conditions = [condition for condition in verdict.detail.split(", ") if condition]
    closures = _closures(policy, offers, closed_sites) if Condition.SITE_CLOSED in conditions else {}
    sentences = {**CONDITIONS, **_tags(queue, offers), **_too_short(queue, policy, offers)}
    sentences[Condition.REQUIREMENTS] = match_text_refused(queue)
    sentences[Condition.FOLDER] = unshared(queue, policy)
    parts = [*closures, *(sentences[condition] for condition in conditions if condition in sentences)]
    summary = f"no known node fits: {'; '.join(parts)}"
    if conditions == [Condition.SITE_CLOSED]:
        return summary, "; ".join(dict.fromkeys(closures.values()))
    if answer.openings:
        best = answer.openings[0]
        where = f"at site {next(iter(best.sites))}" if len(best.sites) == 1 else f"at {len(best.sites)} sites"
        return summary, f"submit the job {_with(best)}: it then fits {plural(best.slots, 'slot')} {where}"
    if conditions == [Condition.REQUIRED_TAGS] and (unusable := _unusable_ces(offers)):
        return summary, unusable
    if advice := next((IN_PLACE[condition] for condition in conditions if condition in IN_PLACE), ""):
        return summary, advice
    if conditions == [Condition.BANNED_OWNER]:
        return summary, "`pilotage ban list` tells who banned the owner, why and until when"
    times = {Condition.CPU_TIME, Condition.WALL_TIME}
    if conditions and times.issuperset(conditions) and (longer := _longer_wall(queue, policy, offers)):
        return summary, longer
    return (
        summary,
        "no single change to the job makes it fit: check the conditions that refuse it at each site",
    )


def _closures(policy: Policy, offers: Sequence[Offer], closed_sites: Mapping[str, str]) -> dict[str, str]:
    """Why the sites of these offers are closed → the change that opens them."""
    closures: dict[str, str] = {}
    for offer in offers:
        site = policy.sites.get(offer.site)
        if site is None:
            closures[f"the site {offer.site} is no longer in the policy"] = (
                "an administrator can restore the site (`pilotage policy apply`); or submit the job to another site"
            )
        elif site.banned:
            closures[f"the site {offer.site} is banned in the policy"] = (
                "an administrator can lift the ban (`pilotage policy apply`); or submit the job to another site"
            )
        elif offer.site in closed_sites:
            closures[closed_sites[offer.site]] = (
                f"an administrator can open it (`pilotage site enable {offer.site}`); or submit the job to another site"
            )
        elif offer.ce not in policy.ces:
            closures[f"the CE {offer.ce} is no longer in the policy"] = (
                "an administrator can restore the CE (`pilotage policy apply`); or submit the job to another CE"
            )
        elif policy.ces[offer.ce].isolation == "require" and not offer.isolated:
            closures[f"the CE {offer.ce} requires isolation, which its pilots do not offer"] = (
                f"`pilotage ce show {offer.ce}` shows why its nodes cannot isolate payloads"
            )
    return closures


def _tags(queue: QueueIdentity, offers: Sequence[Offer]) -> dict[str, str]:
    """Sentences for the two conditions on tags, with the names of the tags."""
    missing = frozenset[str]().union(*(queue.tags - offer.tags for offer in offers))
    required = frozenset[str]().union(*(offer.required_tags - queue.tags for offer in offers))
    missing_are = "is" if len(missing) == 1 else "are"
    required_are = "is" if len(required) == 1 else "are"
    return {
        Condition.TAGS: f"{_tags_named(missing)} {missing_are} requested but not offered",
        Condition.REQUIRED_TAGS: f"{_tags_named(required)} {required_are} required there but not among the job's tags",
    }


def _short_ces(queue: QueueIdentity, policy: Policy, offers: Sequence[Offer]) -> dict[str, Ce]:
    """The CEs of these offers where a new pilot has less time for jobs than this queue requests."""
    known = {offer.ce: policy.ces[offer.ce] for offer in offers if offer.ce in policy.ces}
    return {
        name: ce
        for name, ce in sorted(known.items())
        if cpu_time_of_new_pilot(ce.wall, ce.cpu_power) < queue.cpu_time
        or wall_of_new_pilot(ce.wall) < queue.wall_time
    }


def _too_short(queue: QueueIdentity, policy: Policy, offers: Sequence[Offer]) -> dict[str, str]:
    """Sentences for the conditions on time where even a new pilot of the CE has too little."""
    cpu, wall = [], []
    for name, ce in _short_ces(queue, policy, offers).items():
        gives = (
            f"CE {name} gives pilots {ce.wall:g} s of wall time, of which {kept(ce.wall):g} s are reserved for their"
            " start and end; that leaves"
        )
        power = f" (cpu_power {ce.cpu_power:g})" if ce.cpu_power != 1 else ""
        left = cpu_time_of_new_pilot(ce.wall, ce.cpu_power)
        if left < queue.cpu_time:
            cpu.append(f"{gives} {left:g} s of CPU time{power}")
        if wall_of_new_pilot(ce.wall) < queue.wall_time:
            wall.append(f"{gives} {wall_of_new_pilot(ce.wall):g} s")
    sentences = {}
    if cpu:
        sentences[Condition.CPU_TIME] = (
            f"{'; '.join(cpu)}; the CPU bucket of this queue is {queue.cpu_time} s"
        )
    if wall:
        sentences[Condition.WALL_TIME] = f"{'; '.join(wall)}; jobs of this queue ask for {queue.wall_time} s"
    return {str(condition): sentence for condition, sentence in sentences.items()}


def _longer_wall(queue: QueueIdentity, policy: Policy, offers: Sequence[Offer]) -> str:
    short = _short_ces(queue, policy, offers)
    walls = [
        f"ces.{name}.wall = {max(wall_for(queue.cpu_time, ce.cpu_power), wall_for_job(queue.wall_time))}"
        for name, ce in short.items()
    ]
    return (
        f"an administrator can give pilots more time (`pilotage policy apply`): {', '.join(walls)}"
        if walls
        else ""
    )


def _tags_named(tags: frozenset[str]) -> str:
    return f"the {'tag' if len(tags) == 1 else 'tags'} {listed(tags)}"


def _unusable_ces(offers: Sequence[Offer]) -> str:
    """Advice if every CE requires tags that it does not offer itself: then adding the tag to the job cannot help."""
    ces = {offer.ce: offer.required_tags - offer.tags for offer in offers}
    if not all(ces.values()):
        return ""
    return "; ".join(
        f"CE {ce} requires {_tags_named(tags)}, but does not offer it, so no job can start there:"
        " an administrator must correct its tags (`pilotage policy apply`)"
        for ce, tags in sorted(ces.items())
    )


def _with(opening: Opening) -> str:
    return opening.text if opening.text.startswith("with") else f"with {opening.text}"


def _limit(verdict: WaitVerdict, answer: Why, now: float) -> tuple[str, str]:
    limits = answer.limits
    subject = "a policy limit blocks" if len(limits) == 1 else "policy limits block"
    summary = f"{subject} every node that fits: {verdict.detail}"
    advice = list(dict.fromkeys(_when_open(limit, now) for limit in limits))
    return summary, advice[0] if len(
        advice
    ) == 1 else "each `limit` line says when that limit allows the next start"


def _when_open(limit: ClosedLimit, now: float) -> str:
    """When or how a closed limit allows the next start."""
    if limit.most == 0:
        return CLOSED_BY_ZERO
    seconds = math.ceil(limit.wait)
    if limit.most is None or limit.running < limit.most:
        when = datetime.fromtimestamp(now + limit.wait, UTC)
        return f"the limit allows the next start in {seconds} s, at {when:%Y-%m-%d %H:%M:%S} UTC"
    jobs = "the running job ends" if limit.running == 1 else f"one of the {limit.running:,} running jobs ends"
    later = f", but not within the next {seconds} s" if limit.wait else ""
    return f"the limit allows the next start when {jobs}{later}"


def _background(verdict: WaitVerdict, answer: Why) -> tuple[str, str]:
    return (
        "all jobs in this queue have UserPriority 0: they start only when no other queue of the same owner fits",
        "submit with a UserPriority of 1 or more to take part in the draw",
    )


def _cpu_bucket(verdict: WaitVerdict, answer: Why) -> tuple[str, str]:
    buckets = answer.standings[0].higher_buckets if answer.standings else []
    queues, jobs = sum(b.queues for b in buckets), sum(b.jobs for b in buckets)
    count = f" ({plural(jobs, 'job')} in {plural(queues, 'queue')})" if queues else ""
    return f"jobs with more CPU time go first{count}: the highest waiting CPU bucket is {verdict.detail}", (
        'the policy sets matching.rule = "dirac", so short jobs wait while longer jobs fit the same nodes;'
        ' an administrator can choose "proportional" (`pilotage policy apply`)'
    )


def _pool(verdict: WaitVerdict, answer: Why) -> tuple[str, str]:
    return f"no submit pool takes the pilots of this queue: {verdict.detail}", (
        "submit with other SubmitPools, or an administrator can change the pools of [director] in the policy; a full"
        " pool takes pilots again when its submissions have ended"
    )


def _share(verdict: WaitVerdict, answer: Why) -> tuple[str, str]:
    if not answer.standings:
        return "the nodes that fit were given to other queues", ""
    first = answer.standings[0]
    rivals = "1 competitor has" if first.ahead == 1 else f"{first.ahead:,} competitors have"
    return (
        f"this queue competes with {plural(first.queues - 1, 'other queue')} for the nodes that fit;"
        f" {rivals if first.ahead else 'no competitor has'} a larger share",
        f"each time such a node asks for work, this queue is drawn with a chance of {percent(first.chance)}",
    )


def _pilot(verdict: WaitVerdict, answer: Why) -> tuple[str, str]:
    return f"a pilot was submitted and has not contacted the server yet (CE {verdict.detail})", (
        "if this lasts, `pilotage pilot list --all` shows how the last pilots ended"
    )


def _closed_ces(verdict: WaitVerdict, answer: Why) -> tuple[str, str]:
    names = " and ".join(f"`pilotage ce show {ce.ce}`" for ce in answer.pilots) or "`pilotage ce list`"
    return f"no new pilots are submitted where the job fits: {verdict.detail}", (
        f"{names} shows the state and what helps; running pilots go on, and pauses end by themselves"
    )


def _slots(verdict: WaitVerdict, answer: Why) -> tuple[str, str]:
    if verdict.detail:
        return (
            f"nodes fit, but the pilots that asked for work are reserved for other owners: the {verdict.detail} only",
            (
                "a pilot is leaving to make room for the owner whose turn is next"
                if any(ce.giving_way for ce in answer.pilots)
                else "a pilot whose node does not isolate owners serves one owner at a time; when its quantum"
                " (`ces.NAME.quantum`) is over, all owners take part in the draw"
            ),
        )
    full = [ce for ce in answer.pilots if ce.cores and ce.used >= ce.cores]
    if full:
        cores, pilots = sum(ce.cores for ce in full), sum(sum(ce.pilots.values()) for ce in full)
        users = f"{plural(pilots, 'pilot')} {'uses' if pilots == 1 else 'use'}"
        used = "the only core" if cores == 1 else f"all {cores:,} cores"
        names = ", ".join(ce.ce for ce in full)
        return (
            f"nodes fit, but none with free room has asked for work: {users} {used} of {names}",
            "the next job starts when cores become free",
        )
    return "nodes fit, but none has asked for work since the wait began", (
        "`pilotage pilot list --all` shows whether pilots start"
    )


_SENTENCES: Mapping[Reason, Callable[[WaitVerdict, Why], tuple[str, str]]] = {
    Reason.DRAINING: _draining,
    Reason.NO_OFFER: _no_offer,
    Reason.POOL: _pool,
    Reason.BACKGROUND: _background,
    Reason.CPU_BUCKET: _cpu_bucket,
    Reason.SHARE: _share,
    Reason.PILOT: _pilot,
    Reason.CE: _closed_ces,
    Reason.SLOTS: _slots,
}


def percent(part: float) -> str:
    """Such as "25 %", "0.4 %", "< 0.01 %"."""
    if 0 < part < 0.0001:
        return "< 0.01 %"
    return f"{part * 100:.3g} %"
