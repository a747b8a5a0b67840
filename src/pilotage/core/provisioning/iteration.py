"""One iteration of the director with demand `dirac`: for each waiting queue its pilots, pool and CEs.

The real iteration, `director --explain` and `director --dry-run` call `decide`. So an explanation cannot differ from
the act. Each queue is a step of its own: the caller may pause between two steps.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import accumulate, chain, islice, repeat
from random import Random
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from pilotage.core.ids import QueueId
from pilotage.core.policy.director import Director
from pilotage.core.policy.model import PilotType
from pilotage.core.provisioning.demand import DemandQueue, DemandSums, QueueDemand, draw_demands
from pilotage.core.provisioning.submit_pools import PoolLoad, PoolVerdict, try_pools
from pilotage.core.queues.fit import Offer, concurrent_jobs
from pilotage.core.queues.identity import QueueIdentity

Mask = NDArray[np.bool_]

PRIVATE: PilotType = "private"
GENERIC: PilotType = "generic"


@dataclass(frozen=True, slots=True)
class BatchOrder:
    """Pilots of one submission: all are alike."""

    queue: QueueId
    """The queue that they are for; they may serve others."""
    pilots: int
    pilot_type: PilotType
    owner: str
    """With `group` the identity under which they are submitted. A private pilot serves this identity only."""
    group: str
    pool: str
    """The submit pool that submits them."""


def room_for_pilots(waiting: int, running: int, max_waiting: int, max_running: int) -> int:
    """Pilots that a CE's caps still allow. A waiting pilot counts as one that will run."""
    return max(0, min(max_waiting - waiting, max_running - running - waiting))


def required_type(queue: QueueIdentity) -> PilotType | None:
    """The only type that the queue accepts; None: both. ForceGeneric comes before PilotTypes."""
    if queue.force_generic:
        return GENERIC
    return PRIVATE if PRIVATE in queue.pilot_types else None


def choose_type(queue: QueueIdentity, settings: Director, rng: Random) -> PilotType:
    """The type of pilots to submit for `queue` in this iteration. Draws only if the queue accepts both."""
    required = required_type(queue)
    if required is not None:
        return required
    # The document compares the other way round, against its own description of the fraction.
    return PRIVATE if rng.random() < settings.private_pilot_fraction else GENERIC


def type_at(chosen: PilotType, required: PilotType | None, allowed: frozenset[str]) -> PilotType | None:
    """The type for a CE that takes the types `allowed`; None: no pilot for this queue may go there.

    A queue that accepts both types follows the type that the CE takes.
    """
    if chosen in allowed:
        return chosen
    other = GENERIC if chosen == PRIVATE else PRIVATE
    return other if required is None and other in allowed else None


@dataclass(slots=True)
class CeLoad:
    """A CE that the director may submit to. `room` shrinks in the course of an iteration."""

    name: str
    pool: str
    middleware: str
    offer: Offer
    """The offer of a new pilot there."""
    pilot_types: frozenset[str]
    room: int
    """Pilots that its caps still allow."""
    closed: str = ""
    """Why no pilot is submitted there at all; empty: it is open."""
    full: str = ""
    """Why its batch system takes no further job at present. `room` is 0 then."""
    draining: bool = False
    """Pilots go there only for queues that can run nowhere else."""
    rank: float = 0.0


class Shortfall(StrEnum):
    """Why a queue gets fewer pilots than its demand, or none."""

    NONE = ""
    NOT_DRAWN = "the draw gave none"
    COVERED = "enough pilots wait already"
    NO_POOL = "no submit pool takes its pilots"
    NO_CE = "no CE of the pool fits"
    IMPOSSIBLE = "its Requirements can be true at no CE that fits otherwise"
    REFUSED = "the CEs that fit refuse the identity that submits"
    CLOSED = "the CEs that fit are closed"
    NO_ROOM = "the CEs that fit have no room"
    LITTLE_ROOM = "the CEs that fit have too little room"


class Fitting(Protocol):
    """Which CEs' new pilots a queue fits, by the predicate of the match."""

    def ces(self, queue: DemandQueue, pilot_type: PilotType) -> Mask:
        """For each CE, whether a new pilot of this type fits, Requirements not checked."""

    def may_match(self, queue: DemandQueue, ce: int, pilot_type: PilotType) -> bool:
        """Whether the Requirements of the queue can be true at a CE, and the CE's are true of the submitter."""

    def is_paused(self, queue: DemandQueue, ce: int) -> bool:
        """Whether a back-off stops pilots for the queue at a CE."""

    def obstacle(self, queue: DemandQueue, pilot_type: PilotType, ces: Sequence[int]) -> Shortfall:
        """Why none of these CEs gets pilots for a queue. `ces`: some that fit it, Requirements not checked."""


@dataclass(frozen=True, slots=True)
class PilotOrder:
    """Equal pilots for one queue at one CE."""

    ce: str
    pilot_type: PilotType
    pilots: int


@dataclass(frozen=True, slots=True)
class MatchedDemand:
    """The waiting jobs of a queue, each counted once over all CEs."""

    jobs: int
    covered: int
    """Jobs that pilots without a job will take."""

    @property
    def pilots(self) -> int:
        """Pilots for a single job that are missing."""
        return max(0, self.jobs - self.covered)


@dataclass(frozen=True, slots=True)
class QueueDecision:
    """The decision for one queue."""

    queue: DemandQueue
    demand: QueueDemand | MatchedDemand
    shortfall: Shortfall
    pilot_type: PilotType | None = None
    """The chosen type; None: there was nothing to choose for."""
    tried: Sequence[tuple[str, PoolVerdict]] = ()
    """The submit pools that were tried, in their order."""
    orders: Sequence[PilotOrder] = ()

    @property
    def pool(self) -> str:
        """The pool that takes the pilots; empty: none."""
        return self.tried[-1][0] if self.tried and self.tried[-1][1] is PoolVerdict.TAKES else ""

    @property
    def submitted(self) -> int:
        return sum(order.pilots for order in self.orders)


@dataclass(slots=True)
class IterationFacts:
    """The begin of an iteration. `ces` and `pools` change while it is decided."""

    settings: Director
    default_pools: Sequence[str]
    max_cpu: float
    """The highest CPU bucket of the policy."""
    queues: Sequence[DemandQueue]
    ces: Sequence[CeLoad]
    pools: Mapping[str, PoolLoad]
    sums: DemandSums = field(init=False)

    def __post_init__(self) -> None:
        self.sums = DemandSums.of(self.queues)

    def pools_of(self, queue: DemandQueue) -> Sequence[str]:
        """The submit pools that may take the pilots of a queue."""
        return sorted(queue.identity.submit_pools) or self.default_pools


def decide(facts: IterationFacts, fitting: Fitting, rng: Random) -> Iterator[QueueDecision]:
    """Decide for one queue after the other, in random order, so that none always comes first."""
    queues = in_random_order(facts.queues, rng)
    chooser = _Chooser(facts, fitting, rng)
    while some := list(islice(queues, SLICE)):
        demands = draw_demands(some, facts.sums, facts.settings, facts.max_cpu, rng)
        for queue, demand in zip(some, demands, strict=True):
            yield chooser.decide(queue, demand)


SLICE = 64
"""Queues whose demands are drawn in one step."""


def in_random_order(queues: Sequence[DemandQueue], rng: Random) -> Iterator[DemandQueue]:
    """Each queue once. Each step draws one, so that none is long."""
    left = list(queues)
    for last in range(len(left) - 1, -1, -1):
        drawn = rng.randrange(last + 1)
        left[drawn], left[last] = left[last], left[drawn]
        yield left[last]


def fitting_types(
    facts: IterationFacts, fitting: Fitting, queue: DemandQueue, pilot_type: PilotType
) -> dict[int, PilotType]:
    """CE → type of pilot for it, of the CEs of the queue's pools that it fits. `pilot_type`: the chosen type."""
    ces, required, pools = facts.ces, required_type(queue.identity), set(facts.pools_of(queue))
    middlewares = {name.casefold() for name in queue.identity.grid_middlewares}
    types: dict[int, PilotType] = {}
    for place in np.flatnonzero(fitting.ces(queue, pilot_type)).tolist():
        ce = ces[place]
        there = type_at(pilot_type, required, ce.pilot_types)
        if (
            there is not None
            and ce.pool in pools
            and (not middlewares or ce.middleware.casefold() in middlewares)
            and fitting.may_match(queue, place, there)
            and not fitting.is_paused(queue, place)
        ):
            types[place] = there
    return types


def obstacle(
    facts: IterationFacts,
    fitting: Fitting,
    queue: DemandQueue,
    pilot_type: PilotType,
    pools: Collection[str],
) -> Shortfall:
    """Why no CE of these pools fits a queue."""
    places: list[int] = np.flatnonzero(fitting.ces(queue, pilot_type)).tolist()
    return fitting.obstacle(queue, pilot_type, [place for place in places if facts.ces[place].pool in pools])


class _Chooser:
    """Chooses type, pool and CEs for the pilots of queues."""

    def __init__(self, facts: IterationFacts, fitting: Fitting, rng: Random) -> None:
        self._facts, self._fitting, self._rng = facts, fitting, rng

    def decide(self, queue: DemandQueue, demand: QueueDemand) -> QueueDecision:
        if not demand.pilots:
            reason = Shortfall.COVERED if demand.cap <= 0 < demand.drawn else Shortfall.NOT_DRAWN
            return QueueDecision(queue, demand, reason)
        pilot_type = choose_type(queue.identity, self._facts.settings, self._rng)
        tried = try_pools(self._facts.pools_of(queue), self._facts.pools, self._rng)
        if not tried or tried[-1][1] is not PoolVerdict.TAKES:
            return QueueDecision(queue, demand, Shortfall.NO_POOL, pilot_type, tried)
        pool = tried[-1][0]
        shortfall, orders = self._order(queue, demand.pilots, pilot_type, pool)
        self._facts.pools[pool].submissions += len(orders)
        return QueueDecision(queue, demand, shortfall, pilot_type, tried, orders)

    def _order(
        self, queue: DemandQueue, wanted: int, pilot_type: PilotType, pool: str
    ) -> tuple[Shortfall, Sequence[PilotOrder]]:
        types = self._fitting_types(queue, pilot_type, pool)
        if not types:
            return obstacle(self._facts, self._fitting, queue, pilot_type, (pool,)), ()
        ces = self._facts.ces
        candidates = [place for place in types if not ces[place].closed]
        if not candidates:
            return Shortfall.CLOSED, ()
        with_room = [place for place in candidates if ces[place].room > 0]
        if not with_room:
            return Shortfall.NO_ROOM, ()
        if self._facts.settings.pool(pool).enable_list_match:
            places: Iterable[int] = self._by_rank(with_room)
        else:
            places = self._by_room(with_room, wanted)
        counts, missing = self._fill(queue, wanted, places)
        orders = [PilotOrder(ces[place].name, types[place], count) for place, count in counts.items()]
        return Shortfall.LITTLE_ROOM if missing > 0 else Shortfall.NONE, orders

    def _fitting_types(self, queue: DemandQueue, pilot_type: PilotType, pool: str) -> dict[int, PilotType]:
        """CE → type of pilot for it, of the CEs of the pool that the queue fits."""
        types = fitting_types(self._facts, self._fitting, queue, pilot_type)
        ces = self._facts.ces
        # A site that drains gets pilots only for queues that can run nowhere else.
        staying = {place: type_ for place, type_ in types.items() if not ces[place].draining}
        return {place: type_ for place, type_ in (staying or types).items() if ces[place].pool == pool}

    def _by_rank(self, places: Sequence[int]) -> Iterator[int]:
        """One entry for each pilot that has room: the CE of the highest rank first, equal ones in random order."""
        ces = self._facts.ces
        order = sorted(places, key=lambda place: (-ces[place].rank, self._rng.random()))
        return chain.from_iterable(repeat(place, ces[place].room) for place in order)

    def _by_room(self, places: Sequence[int], wanted: int) -> list[int]:
        """CEs for up to `wanted` pilots, one after the other, each drawn with a weight of the room that is left."""
        # A pilot's place drawn among all free ones, none of them twice, is exactly that.
        rooms = list(accumulate(self._facts.ces[place].room for place in places))
        drawn = self._rng.sample(range(rooms[-1]), min(wanted, rooms[-1]))
        return [places[bisect_right(rooms, number)] for number in drawn]

    def _fill(self, queue: DemandQueue, wanted: int, places: Iterable[int]) -> tuple[Counter[int], int]:
        """Pilots by CE, and the part of `wanted` that they do not cover. A wide pilot covers several."""
        ces, counts, beside = self._facts.ces, Counter[int](), dict[int, int]()
        for place in places:
            if wanted <= 0:
                break
            if place not in beside:
                beside[place] = max(1, concurrent_jobs(queue.identity, ces[place].offer))
            counts[place] += 1
            ces[place].room -= 1
            wanted -= beside[place]
        return counts, wanted
