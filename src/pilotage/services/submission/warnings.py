"""Warnings at submission: what is accepted and will not run, or not as its owner means it, as things are.

Whether anything known fits is asked of the predicate that matches. A warning refuses nothing: pilots of tomorrow may
offer what those of today do not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace

from pilotage.core.jobs.description import JobDescription
from pilotage.core.jobs.parametric import placeholder_warnings
from pilotage.core.policy import Policy
from pilotage.core.queues.fit import Condition, Offer
from pilotage.core.queues.identity import QueueIdentity
from pilotage.core.queues.offer_history import KnownOffer

NAMED = 5
"""So many names of sites, CEs, platforms are told in one warning."""


def submission_warnings(
    description: JobDescription,
    names: Sequence[str],
    queue: QueueIdentity,
    policy: Policy,
    known: Sequence[KnownOffer],
) -> list[str]:
    """What to tell the owner. `names` are those of the parameters; `known` the offers to reckon with now."""
    return [
        *placeholder_warnings(description, names),
        *_for_the_director(description),
        *_unknown_banned_sites(description, policy),
        *_above_the_buckets(description, policy),
        *_nothing_fits(description, queue, policy, known),
    ]


def _for_the_director(description: JobDescription) -> Iterator[str]:
    fields = {
        "PilotTypes": description.pilot_types,
        "SubmitPools": description.submit_pools,
        "GridMiddleware": description.grid_middlewares,
    }
    given = [name for name, value in fields.items() if value]
    if given:
        verb = "is" if len(given) == 1 else "are"
        yield (
            f"{' and '.join(given)} {verb} kept with the job and {'has' if verb == 'is' else 'have'} no effect on where"
            " pilots are sent: there is no director for batch systems yet"
        )


def _unknown_banned_sites(description: JobDescription, policy: Policy) -> Iterator[str]:
    unknown = [name for name in description.banned_sites if name not in policy.sites]
    if unknown:
        yield (
            f"BannedSites: there is no {_some(unknown)} in the policy;"
            f" there are: {_some(sorted(policy.sites)) or 'none'}"
        )


def _above_the_buckets(description: JobDescription, policy: Policy) -> Iterator[str]:
    last = policy.matching.cpu_buckets[-1]
    if description.cpu_time > last:
        yield (
            f"CPUTime {description.cpu_time:g} s is above the last bucket: it waits in that of {last} s, and may be"
            " given to a pilot with less time left than it needs"
        )


def _nothing_fits(
    description: JobDescription, queue: QueueIdentity, policy: Policy, known: Sequence[KnownOffer]
) -> Iterator[str]:
    sites = set(description.sites or policy.sites) - set(description.banned_sites)
    if not any(ce.site in sites for ce in policy.ces.values()):
        yield "no site that it may run at has a CE: it waits until the policy has one"
        return
    lasting = [_lasting(one, policy) for one in known]
    if not lasting:
        return
    fitting = [one.offer for one in lasting if one.fits(queue)]
    if not fitting:
        yield f"nothing that is known can run it, and it will wait: {_nearest(description, queue, policy, lasting)}"
        return
    longest = max((policy.ces[offer.ce].wall for offer in fitting if offer.ce in policy.ces), default=0.0)
    if description.wall_time > longest > 0:
        yield (
            f"its wall time of {description.wall_time:,} s is above that of each CE that fits it (at most"
            f" {longest:,.0f} s): it is stopped when its pilot must end"
        )


def _lasting(one: KnownOffer, policy: Policy) -> KnownOffer:
    """Without the owner that a pilot is bound to by its first job: the next pilot may be anybody's."""
    ce = policy.ces.get(one.offer.ce)
    if one.possible or one.offer.only_owner is None or ce is None or ce.owners == "home":
        return one
    return replace(one, offer=replace(one.offer, only_owner=None))


def _nearest(
    description: JobDescription, queue: QueueIdentity, policy: Policy, known: Sequence[KnownOffer]
) -> str:
    """The conditions at which the nearest offers refuse it, at the sites and CEs that it allows if there are any."""
    failed = [one.failures(queue) for one in known]
    elsewhere = {Condition.SITE, Condition.BANNED_SITE, Condition.GRID_CE}
    distances = [
        (bool(elsewhere & set(conditions)), len(conditions), Condition.SITE_CLOSED in conditions)
        for conditions in failed
    ]
    least = min(distances)
    offers: dict[Condition, list[Offer]] = {}
    for one, conditions, distance in zip(known, failed, distances, strict=True):
        if distance == least:
            for condition in conditions:
                offers.setdefault(condition, []).append(one.offer)
    told = [_TOLD[c](description, queue, offers[c]) for c in Condition if c in offers and c in _TOLD]
    return "; ".join(told)


_Told = Callable[[JobDescription, QueueIdentity, Sequence[Offer]], str]


def _some(names: Sequence[str]) -> str:
    more = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
    return ", ".join(names[:NAMED]) + more


def _ces(offers: Sequence[Offer]) -> str:
    names = sorted({offer.ce for offer in offers})
    return f"{'CE' if len(names) == 1 else 'CEs'} {_some(names)}"


def _closed(description: JobDescription, queue: QueueIdentity, offers: Sequence[Offer]) -> str:
    names = sorted({offer.site for offer in offers})
    return f"the policy lets nothing start at {_some(names)}"


def _owner(description: JobDescription, queue: QueueIdentity, offers: Sequence[Offer]) -> str:
    owners = sorted({offer.only_owner for offer in offers if offer.only_owner})
    whose = f"jobs of {_some(owners)} only" if owners else "jobs of other owners only"
    return (
        f"{_ces(offers)} is for {whose}"
        if len({o.ce for o in offers}) == 1
        else f"{_ces(offers)} are for {whose}"
    )


def _setup(description: JobDescription, queue: QueueIdentity, offers: Sequence[Offer]) -> str:
    names = sorted({offer.setup or "none" for offer in offers})
    return f"it asks for the setup {queue.setup or 'none'}, and there is {_some(names)}"


def _cpu_time(description: JobDescription, queue: QueueIdentity, offers: Sequence[Offer]) -> str:
    most = max(offer.cpu_time for offer in offers)
    return (
        f"it asks for {description.cpu_time:,} s of CPU time (step {queue.cpu_time:,} s), and a pilot of {_ces(offers)}"
        f" has at most {most:,.0f} s"
    )


def _pilot_type(description: JobDescription, queue: QueueIdentity, offers: Sequence[Offer]) -> str:
    asked = "generic" if queue.force_generic else " or ".join(sorted(queue.pilot_types))
    there = _some(sorted({offer.pilot_type for offer in offers}))
    return f"it accepts {asked} pilots only, and those of {_ces(offers)} are {there}"


def _grid_ce(description: JobDescription, queue: QueueIdentity, offers: Sequence[Offer]) -> str:
    return f"no pilot is known at {_some(sorted(queue.grid_ces))}"


def _site(description: JobDescription, queue: QueueIdentity, offers: Sequence[Offer]) -> str:
    return f"no pilot is known at {_some(sorted(queue.sites)) or 'another site than those it bans'}"


def _platform(description: JobDescription, queue: QueueIdentity, offers: Sequence[Offer]) -> str:
    there = sorted(frozenset[str]().union(*(offer.platforms for offer in offers)))
    return f"it asks for the platform {_some(sorted(queue.platforms))}, and there is {_some(there) or 'none'}"


def _tags(description: JobDescription, queue: QueueIdentity, offers: Sequence[Offer]) -> str:
    missing = sorted(frozenset[str]().union(*(queue.tags - offer.tags for offer in offers)))
    tags = "tag" if len(missing) == 1 else "tags"
    return f"it asks for the {tags} {_some(missing)}, not offered by {_ces(offers)}"


def _required_tags(description: JobDescription, queue: QueueIdentity, offers: Sequence[Offer]) -> str:
    asked = sorted(frozenset[str]().union(*(offer.required_tags - queue.tags for offer in offers)))
    return f"it lacks the {'tag' if len(asked) == 1 else 'tags'} {_some(asked)}, required by {_ces(offers)}"


def _processors(description: JobDescription, queue: QueueIdentity, offers: Sequence[Offer]) -> str:
    most = max(offer.processors for offer in offers)
    return f"it asks for {queue.processors:,} processors, and {_ces(offers)} offer at most {most:,}"


def _memory(description: JobDescription, queue: QueueIdentity, offers: Sequence[Offer]) -> str:
    most = max(offer.memory for offer in offers)
    step = f" (step {queue.memory:,} MB)" if queue.memory != description.memory else ""
    return (
        f"it asks for {description.memory:,} MB of memory{step}, and {_ces(offers)} offer at most {most:,} MB"
    )


def _job_type(description: JobDescription, queue: QueueIdentity, offers: Sequence[Offer]) -> str:
    return f"{_some(sorted({offer.site for offer in offers}))} takes no jobs of type {queue.job_type}"


def _requirements(description: JobDescription, queue: QueueIdentity, offers: Sequence[Offer]) -> str:
    return f"its Requirements ({queue.requirements}) are not true at {_ces(offers)}"


_TOLD: Mapping[Condition, _Told] = {
    Condition.SITE_CLOSED: _closed,
    Condition.OWNER: _owner,
    Condition.SETUP: _setup,
    Condition.CPU_TIME: _cpu_time,
    Condition.PILOT_TYPE: _pilot_type,
    Condition.SITE: _site,
    Condition.BANNED_SITE: _site,
    Condition.GRID_CE: _grid_ce,
    Condition.PLATFORM: _platform,
    Condition.TAGS: _tags,
    Condition.REQUIRED_TAGS: _required_tags,
    Condition.PROCESSORS: _processors,
    Condition.MEMORY: _memory,
    Condition.JOB_TYPE: _job_type,
    Condition.REQUIREMENTS: _requirements,
}
