"""Single changes to a job's needs, with the number of slots that each would open.

Changes are proposed from the known offers that refuse the queue at one condition only. Each is tried with the predicate
on the changed identity, so only changes that would fit are listed.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from pilotage.core.queues.fit import Condition, Offer
from pilotage.core.queues.identity import NONE, QueueIdentity, wall_floor
from pilotage.core.queues.offer_history import KnownOffer, count_slots

MOST_VALUES = 3
"""Values listed per number: the largest value that opens slots, and lower values that open more."""


@dataclass(frozen=True, slots=True)
class Buckets:
    """The values that CPU time (seconds), memory (MB) and disk (MB) of a queue may have."""

    cpu_time: Sequence[int]
    memory: Sequence[int]
    disk: Sequence[int]


@dataclass(frozen=True, slots=True)
class WhatIf:
    """One attribute of the identity with another value; `text` names it in the words of a job description."""

    attribute: str
    value: str | int
    text: str
    identity: QueueIdentity


@dataclass(frozen=True, slots=True)
class Unblock:
    """The effect of a change: slots by site, in offers that refuse the queue as it is."""

    change: WhatIf
    sites: Mapping[str, int]
    offers: tuple[int, ...]
    """Places in the list of known offers."""

    @property
    def slots(self) -> int:
        return sum(self.sites.values())


def unblocks(queue: QueueIdentity, known: Sequence[KnownOffer], buckets: Buckets) -> list[Unblock]:
    """The changes that open slots, most slots first."""
    near: dict[Condition, list[int]] = {}
    for place, known_offer in enumerate(known):
        failed = known_offer.failures(queue)
        if len(failed) == 1:
            near.setdefault(failed[0], []).append(place)
    opening: list[Unblock] = []
    for condition, places in near.items():
        propose = _PROPOSALS.get(condition)
        if propose is not None:
            numeric = condition in _NUMBERS
            opened = list(_evaluated(queue, known, places, propose, buckets, everywhere=numeric))
            opening += _that_matter(opened) if numeric else opened
    return sorted(opening, key=lambda known_offer: (-known_offer.slots, known_offer.change.text))


def _evaluated(
    queue: QueueIdentity,
    known: Sequence[KnownOffer],
    places: Sequence[int],
    propose: Proposals,
    buckets: Buckets,
    *,
    everywhere: bool,
) -> Iterator[Unblock]:
    """The proposals of the offers at `places`, tried on the offers that made them, or on all of `places`.

    A change to "" drops the condition, so it is tried on all of `places` too.
    """
    by_change: dict[WhatIf, list[int]] = {}
    for place in places:
        for change in propose(queue, known[place].offer, buckets):
            by_change.setdefault(change, []).append(place)
    for change, proposers in by_change.items():
        tried = places if everywhere or change.value == "" else proposers
        fitting = tuple(place for place in tried if known[place].fits(change.identity))
        sites = count_slots(change.identity, (known[place] for place in fitting))
        if sites:
            yield Unblock(change, sites, fitting)


def _that_matter(opened: list[Unblock]) -> list[Unblock]:
    """The useful values of one number: the largest, then each that opens more slots than all larger ones."""
    chain: list[Unblock] = []
    for unblock in sorted(opened, key=lambda unblock: -int(unblock.change.value)):
        if not chain or unblock.slots > chain[-1].slots:
            chain.append(unblock)
    return chain if len(chain) <= MOST_VALUES else [*chain[: MOST_VALUES - 1], chain[-1]]


# --- proposals of an offer that refuses at one condition

Proposals = Callable[[QueueIdentity, Offer, Buckets], Iterator[WhatIf]]


def _floor(buckets: Sequence[int], value: float) -> int:
    place = bisect_right(buckets, value)
    return buckets[place - 1] if place else 0


def _cpu_time(queue: QueueIdentity, offer: Offer, buckets: Buckets) -> Iterator[WhatIf]:
    value = _floor(buckets.cpu_time, offer.cpu_time)
    if value:
        yield WhatIf("cpu_time", value, f"CPU time <= {value} s", replace(queue, cpu_time=value))


def _wall_time(queue: QueueIdentity, offer: Offer, buckets: Buckets) -> Iterator[WhatIf]:
    value = wall_floor(offer.wall_time)
    if value:
        yield WhatIf("wall_time", value, f"wall time <= {value} s", replace(queue, wall_time=value))


def _memory(queue: QueueIdentity, offer: Offer, buckets: Buckets) -> Iterator[WhatIf]:
    for value in _per_job(queue, offer, offer.memory, buckets.memory):
        text = f"memory <= {value} MB" if value else "no memory asked for"
        yield WhatIf("memory", value, text, replace(queue, memory=value))


def _disk(queue: QueueIdentity, offer: Offer, buckets: Buckets) -> Iterator[WhatIf]:
    for value in _per_job(queue, offer, offer.disk, buckets.disk):
        text = f"disk <= {value} MB" if value else "no disk asked for"
        yield WhatIf("disk", value, text, replace(queue, disk=value))


def _per_job(queue: QueueIdentity, offer: Offer, offered: int, buckets: Sequence[int]) -> set[int]:
    """All of an offered size, and the part of a job if jobs use all processors of the offer."""
    wide = max(1, offer.processors // max(1, queue.processors))
    whole, part = _floor(buckets, offered), _floor(buckets, offered // wide)
    return {whole, part or whole}


def _processors(queue: QueueIdentity, offer: Offer, buckets: Buckets) -> Iterator[WhatIf]:
    value = offer.processors
    if value > 0:
        yield WhatIf("processors", value, f"processors <= {value}", replace(queue, processors=value))


def _site(queue: QueueIdentity, offer: Offer, buckets: Buckets) -> Iterator[WhatIf]:
    changed = replace(queue, sites=queue.sites | {offer.site})
    yield WhatIf("sites", offer.site, f"site {offer.site} allowed too", changed)


def _banned_site(queue: QueueIdentity, offer: Offer, buckets: Buckets) -> Iterator[WhatIf]:
    changed = replace(queue, banned_sites=queue.banned_sites - {offer.site})
    yield WhatIf("banned_sites", offer.site, f"site {offer.site} not banned by the job", changed)


def _grid_ce(queue: QueueIdentity, offer: Offer, buckets: Buckets) -> Iterator[WhatIf]:
    changed = replace(queue, grid_ces=queue.grid_ces | {offer.ce})
    yield WhatIf("grid_ces", offer.ce, f"CE {offer.ce} allowed too", changed)


def _platform(queue: QueueIdentity, offer: Offer, buckets: Buckets) -> Iterator[WhatIf]:
    for name in sorted(offer.platforms):
        changed = replace(queue, platforms=queue.platforms | {name})
        yield WhatIf("platforms", name, f"platform {name} allowed too", changed)
    if not offer.platforms:
        yield WhatIf("platforms", "", "any platform", replace(queue, platforms=NONE))


def _tag_dropped(queue: QueueIdentity, offer: Offer, buckets: Buckets) -> Iterator[WhatIf]:
    missing = queue.tags - offer.tags
    if len(missing) == 1:
        [name] = missing
        yield WhatIf("tags", name, f"without the tag {name}", replace(queue, tags=queue.tags - missing))


def _tag_added(queue: QueueIdentity, offer: Offer, buckets: Buckets) -> Iterator[WhatIf]:
    missing = offer.required_tags - queue.tags
    if len(missing) == 1:
        [name] = missing
        yield WhatIf("tags", name, f"with the tag {name}", replace(queue, tags=queue.tags | missing))


def _setup(queue: QueueIdentity, offer: Offer, buckets: Buckets) -> Iterator[WhatIf]:
    text = f"setup {offer.setup}" if offer.setup else "no setup"
    yield WhatIf("setup", offer.setup, text, replace(queue, setup=offer.setup))


def _job_type(queue: QueueIdentity, offer: Offer, buckets: Buckets) -> Iterator[WhatIf]:
    for name in sorted(offer.job_types or ()):
        yield WhatIf("job_type", name, f"job type {name}", replace(queue, job_type=name))


def _pilot_type(queue: QueueIdentity, offer: Offer, buckets: Buckets) -> Iterator[WhatIf]:
    if queue.force_generic:
        yield WhatIf("force_generic", 0, "without ForceGeneric", replace(queue, force_generic=False))
    else:
        changed = replace(queue, pilot_types=queue.pilot_types | {offer.pilot_type})
        yield WhatIf("pilot_types", offer.pilot_type, f"{offer.pilot_type} pilots allowed too", changed)


def _requirements(queue: QueueIdentity, offer: Offer, buckets: Buckets) -> Iterator[WhatIf]:
    if queue.requirements:
        yield WhatIf("requirements", "", "without its Requirements", replace(queue, requirements=""))
    if queue.host_requirements:
        changed = replace(queue, host_requirements="")
        yield WhatIf("host_requirements", "", "without its HostRequirements", changed)
    if queue.output_se:
        yield WhatIf("output_se", "", f"without OutputSE {queue.output_se}", replace(queue, output_se=""))


_NUMBERS = frozenset(
    {Condition.CPU_TIME, Condition.WALL_TIME, Condition.MEMORY, Condition.DISK, Condition.PROCESSORS}
)

_PROPOSALS: Mapping[Condition, Proposals] = {
    Condition.CPU_TIME: _cpu_time,
    Condition.WALL_TIME: _wall_time,
    Condition.MEMORY: _memory,
    Condition.DISK: _disk,
    Condition.PROCESSORS: _processors,
    Condition.SITE: _site,
    Condition.BANNED_SITE: _banned_site,
    Condition.GRID_CE: _grid_ce,
    Condition.PLATFORM: _platform,
    Condition.TAGS: _tag_dropped,
    Condition.REQUIRED_TAGS: _tag_added,
    Condition.SETUP: _setup,
    Condition.JOB_TYPE: _job_type,
    Condition.PILOT_TYPE: _pilot_type,
    Condition.REQUIREMENTS: _requirements,
}
"""The other conditions (membership, a closed site, the pilot's owner) cannot be changed by the job."""
