"""Warnings at submission: jobs that cannot run at present, or not as their owner expects.

The predicate that matches jobs decides whether a known offer fits. A warning refuses nothing: later pilots may offer
more than the present ones.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace

from pilotage.core.brokering.ce_answer import in_glue_spelling
from pilotage.core.brokering.misspelt import misspelt_names
from pilotage.core.brokering.requester_ad import match_expression
from pilotage.core.jobs.description import JobDescription
from pilotage.core.jobs.parametric import placeholder_warnings
from pilotage.core.policy import Policy
from pilotage.core.queues.fit import Condition, Offer, shares_all
from pilotage.core.queues.identity import QueueIdentity
from pilotage.core.queues.offer_history import KnownOffer

NAMED = 5
"""Maximum number of names of sites, CEs or platforms in one warning."""


def submission_warnings(
    description: JobDescription,
    names: Sequence[str],
    queue: QueueIdentity,
    policy: Policy,
    known: Sequence[KnownOffer],
    switched_off: Collection[str] = (),
) -> list[str]:
    """The warnings for the owner. `names` are the names of the parameters, `known` the known offers.

    `switched_off`: CEs that are disabled or stopped.
    """
    return [
        *placeholder_warnings(description, names),
        *_unknown_submit_pools(description, policy),
        *_unknown_banned_sites(description, policy),
        *_output_patterns(description),
        *_above_the_buckets(description, policy),
        *_misspelt_names(queue),
        *_unshared_folders(queue, policy),
        *_nothing_fits(description, queue, policy, known, switched_off),
    ]


def _misspelt_names(queue: QueueIdentity) -> Iterator[str]:
    if queue.match_text:
        yield from misspelt_names(in_glue_spelling(match_expression(queue.match_text)))


def _unknown_submit_pools(description: JobDescription, policy: Policy) -> Iterator[str]:
    known = policy.submit_pools()
    unknown = [name for name in description.submit_pools if name not in known]
    if unknown:
        yield f"SubmitPools: the policy has no pool {_some(unknown)}; its pools are: {_some(known)}"


def _unknown_banned_sites(description: JobDescription, policy: Policy) -> Iterator[str]:
    unknown = [name for name in description.banned_sites if name not in policy.sites]
    if unknown:
        yield (
            f"BannedSites: the policy has no site {_some(unknown)};"
            f" its sites are: {_some(sorted(policy.sites)) or 'none'}"
        )


def _output_patterns(description: JobDescription) -> Iterator[str]:
    """Brackets are common in names too, so a pattern with them is told; `*` and `?` are clear."""
    patterns = [name for name in description.output_sandbox if "]" in name.partition("[")[2]]
    if patterns:
        yield (
            f"OutputSandbox: {_some(patterns)} has brackets, so it is a pattern: one of the characters in them."
            " A file that has this very name is meant too"
        )


def _above_the_buckets(description: JobDescription, policy: Policy) -> Iterator[str]:
    last = policy.matching.cpu_buckets[-1]
    if description.cpu_time > last:
        yield (
            f"CPUTime {description.cpu_time:g} s exceeds the highest CPU bucket, {last} s: the job waits in that"
            " bucket, and a pilot with less time left may get it"
        )


def _unshared_folders(queue: QueueIdentity, policy: Policy) -> Iterator[str]:
    if not any(shares_all(ce.shared_folders, queue.folders) for ce in policy.ces.values()):
        folders = _some(sorted(queue.folders))
        yield f"no CE shares {folders}: an administrator can add it to ces.NAME.shared_folders of the policy"


def _nothing_fits(
    description: JobDescription,
    queue: QueueIdentity,
    policy: Policy,
    known: Sequence[KnownOffer],
    switched_off: Collection[str],
) -> Iterator[str]:
    sites = set(description.sites or policy.sites) - set(description.banned_sites)
    if not any(ce.site in sites for ce in policy.ces.values()):
        yield "none of its allowed sites has a CE: the job waits until the policy has one"
        return
    lasting = [_lasting(offer, policy) for offer in known]
    if not lasting:
        return
    fitting = {known_offer.offer.ce for known_offer in lasting if known_offer.fits(queue)}
    if not fitting:
        yield f"no known node fits, so the job will wait: {_nearest(description, queue, policy, lasting)}"
    elif fitting <= set(switched_off):
        names = _some(sorted(fitting))
        yield (
            f"it fits {names} only, which {'gets' if len(fitting) == 1 else 'get'} no new pilots:"
            f" `pilotage ce show {min(fitting)}` tells why, and an administrator can enable it"
        )


def _lasting(known_offer: KnownOffer, policy: Policy) -> KnownOffer:
    """The offer without the owner that its pilot is reserved for: the next pilot may serve any owner."""
    ce = policy.ces.get(known_offer.offer.ce)
    if known_offer.possible or known_offer.offer.only_owner is None or ce is None or not ce.serves_everybody:
        return known_offer
    return replace(known_offer, offer=replace(known_offer.offer, only_owner=None))


def _nearest(
    description: JobDescription, queue: QueueIdentity, policy: Policy, known: Sequence[KnownOffer]
) -> str:
    """The conditions that the nearest offers fail, preferring offers at allowed sites and CEs."""
    failed = [known_offer.failures(queue) for known_offer in known]
    elsewhere = {Condition.SITE, Condition.BANNED_SITE, Condition.GRID_CE}
    distances = [
        (bool(elsewhere & set(conditions)), len(conditions), Condition.SITE_CLOSED in conditions)
        for conditions in failed
    ]
    least = min(distances)
    offers: dict[Condition, list[Offer]] = {}
    refusing: dict[str, list[Offer]] = {}
    for known_offer, conditions, distance in zip(known, failed, distances, strict=True):
        if distance == least:
            for condition in conditions:
                offers.setdefault(condition, []).append(known_offer.offer)
            if Condition.REQUIREMENTS in conditions:
                for name, part in queue.match_parts().items():
                    if not known_offer.holds(part):
                        refusing.setdefault(name, []).append(known_offer.offer)
    texts = [
        _SENTENCES[c](description, queue, offers[c]) for c in Condition if c in offers and c in _SENTENCES
    ]
    texts += [_MATCH_SENTENCES[name](queue, of_part) for name, of_part in refusing.items()]
    return "; ".join(texts)


_Sentence = Callable[[JobDescription, QueueIdentity, Sequence[Offer]], str]


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
    served = f"jobs of {_some(owners)} only" if owners else "jobs of other owners only"
    return (
        f"{_ces(offers)} is for {served}"
        if len({o.ce for o in offers}) == 1
        else f"{_ces(offers)} are for {served}"
    )


def _setup(description: JobDescription, queue: QueueIdentity, offers: Sequence[Offer]) -> str:
    names = sorted({offer.setup or "none" for offer in offers})
    return f"it requests the setup {queue.setup or 'none'}, and the known setups are {_some(names)}"


def _cpu_time(description: JobDescription, queue: QueueIdentity, offers: Sequence[Offer]) -> str:
    most = max(offer.cpu_time for offer in offers)
    return (
        f"it requests {description.cpu_time:,} s of CPU time (bucket {queue.cpu_time:,} s), and a pilot of"
        f" {_ces(offers)} has at most {most:,.0f} s"
    )


def _wall_time(description: JobDescription, queue: QueueIdentity, offers: Sequence[Offer]) -> str:
    most = max(offer.wall_time for offer in offers)
    return (
        f"it requests {description.wall_time:,} s of wall time (bucket {queue.wall_time:,} s), and a pilot of"
        f" {_ces(offers)} has at most {most:,.0f} s"
    )


def _pilot_type(description: JobDescription, queue: QueueIdentity, offers: Sequence[Offer]) -> str:
    asked = "generic" if queue.force_generic else " or ".join(sorted(queue.pilot_types))
    there = _some(sorted({offer.pilot_type for offer in offers}))
    return f"it accepts {asked} pilots only, and those of {_ces(offers)} are {there}"


def _grid_ce(description: JobDescription, queue: QueueIdentity, offers: Sequence[Offer]) -> str:
    return f"no pilot is known at {_some(sorted(queue.grid_ces))}"


def _site(description: JobDescription, queue: QueueIdentity, offers: Sequence[Offer]) -> str:
    return f"no pilot is known at {_some(sorted(queue.sites)) or 'any site that it does not ban'}"


def _platform(description: JobDescription, queue: QueueIdentity, offers: Sequence[Offer]) -> str:
    there = sorted(frozenset[str]().union(*(offer.platforms for offer in offers)))
    return f"it requests the platform {_some(sorted(queue.platforms))}, and the known ones are {_some(there) or 'none'}"


def _tags(description: JobDescription, queue: QueueIdentity, offers: Sequence[Offer]) -> str:
    missing = sorted(frozenset[str]().union(*(queue.tags - offer.tags for offer in offers)))
    tags = "tag" if len(missing) == 1 else "tags"
    return f"it requests the {tags} {_some(missing)}, not offered by {_ces(offers)}"


def _required_tags(description: JobDescription, queue: QueueIdentity, offers: Sequence[Offer]) -> str:
    asked = sorted(frozenset[str]().union(*(offer.required_tags - queue.tags for offer in offers)))
    return f"it lacks the {'tag' if len(asked) == 1 else 'tags'} {_some(asked)}, required by {_ces(offers)}"


def _processors(description: JobDescription, queue: QueueIdentity, offers: Sequence[Offer]) -> str:
    most = max(offer.processors for offer in offers)
    return f"it requests {queue.processors:,} processors; the most offered by {_ces(offers)} is {most:,}"


def _memory(description: JobDescription, queue: QueueIdentity, offers: Sequence[Offer]) -> str:
    most = max(offer.memory for offer in offers)
    step = f" (bucket {queue.memory:,} MB)" if queue.memory != description.memory else ""
    return f"it requests {description.memory:,} MB of memory{step}; the most offered by {_ces(offers)} is {most:,} MB"


def _disk(description: JobDescription, queue: QueueIdentity, offers: Sequence[Offer]) -> str:
    most = max(offer.disk for offer in offers)
    step = f" (bucket {queue.disk:,} MB)" if queue.disk != description.disk else ""
    return (
        f"it requests {description.disk:,} MB of disk{step}; the most free at {_ces(offers)} is {most:,} MB"
    )


def _job_type(description: JobDescription, queue: QueueIdentity, offers: Sequence[Offer]) -> str:
    return f"{_some(sorted({offer.site for offer in offers}))} accepts no jobs of type {queue.job_type}"


def _folder(description: JobDescription, queue: QueueIdentity, offers: Sequence[Offer]) -> str:
    return f"{_ces(offers)} {_do(offers)} not share {_some(sorted(queue.folders))}"


def _account(description: JobDescription, queue: QueueIdentity, offers: Sequence[Offer]) -> str:
    owners = _some(sorted({offer.account for offer in offers}))
    return f"jobs in place run under their owner's account, and pilots of {_ces(offers)} run under that of {owners}"


def _node_folder(description: JobDescription, queue: QueueIdentity, offers: Sequence[Offer]) -> str:
    return f"a node of {_ces(offers)} has another folder at {_some(sorted(queue.folders))}"


def _do(offers: Sequence[Offer]) -> str:
    return "does" if len({offer.ce for offer in offers}) == 1 else "do"


_MATCH_SENTENCES: Mapping[str, Callable[[QueueIdentity, Sequence[Offer]], str]] = {
    "Requirements": lambda queue, offers: (
        f"its Requirements ({queue.requirements}) are not true at {_ces(offers)}"
    ),
    "HostRequirements": lambda queue, offers: (
        f"its HostRequirements ({queue.host_requirements}) are not true at {_ces(offers)}"
    ),
    "OutputSE": lambda queue, offers: f"its OutputSE {queue.output_se} is not close to {_ces(offers)}",
}
"""The warning for each part of the match text, which is the condition REQUIREMENTS."""


_SENTENCES: Mapping[Condition, _Sentence] = {
    Condition.SITE_CLOSED: _closed,
    Condition.OWNER: _owner,
    Condition.SETUP: _setup,
    Condition.CPU_TIME: _cpu_time,
    Condition.WALL_TIME: _wall_time,
    Condition.PILOT_TYPE: _pilot_type,
    Condition.SITE: _site,
    Condition.BANNED_SITE: _site,
    Condition.GRID_CE: _grid_ce,
    Condition.PLATFORM: _platform,
    Condition.TAGS: _tags,
    Condition.REQUIRED_TAGS: _required_tags,
    Condition.PROCESSORS: _processors,
    Condition.MEMORY: _memory,
    Condition.DISK: _disk,
    Condition.JOB_TYPE: _job_type,
    Condition.FOLDER: _folder,
    Condition.ACCOUNT: _account,
    Condition.NODE_FOLDER: _node_folder,
}
