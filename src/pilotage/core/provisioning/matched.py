"""One iteration with demand `matched`: each waiting job is counted once over all CEs.

Pilots without a job cover waiting jobs that they fit. The rest asks for new pilots: one for each queue before a second
one for any. Waiting pilots that cover nothing are not needed any more.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from random import Random

from pilotage.core.policy.model import PilotType
from pilotage.core.provisioning.demand import DemandQueue
from pilotage.core.provisioning.iteration import (
    GENERIC,
    PRIVATE,
    Fitting,
    IterationFacts,
    MatchedDemand,
    PilotOrder,
    QueueDecision,
    Shortfall,
    choose_type,
    fitting_types,
    in_random_order,
    obstacle,
    required_type,
)
from pilotage.core.provisioning.submit_pools import PoolVerdict, try_pools
from pilotage.core.queues.fit import concurrent_jobs

STEP = 8
"""Queues between two pauses."""


@dataclass(slots=True)
class FreePilots:
    """Equal pilots without a job at one CE: they wait, run, or are in doubt."""

    ce: int
    """Place of the CE among the facts."""
    pilot_type: str
    started: int
    waiting: int = 0
    """Pilots that have not called home: they can still be cancelled."""
    owner: str | None = None
    """The only owner that they serve; None: they serve everybody."""
    group: str | None = None
    """The only group that they serve."""

    def serves(self, queue: DemandQueue) -> bool:
        identity = queue.identity
        if required_type(identity) not in (None, self.pilot_type):
            return False
        return self.owner in (None, identity.owner) and self.group in (None, identity.group)

    def take(self, pilots: int) -> int:
        """Use up to this number, started ones first; how many there were."""
        started = min(pilots, self.started)
        waiting = min(pilots - started, self.waiting)
        self.started -= started
        self.waiting -= waiting
        return started + waiting


@dataclass(slots=True)
class _Need:
    """The jobs of one queue that no pilot will take."""

    queue: DemandQueue
    chosen: PilotType
    types: dict[int, PilotType]
    covered: int = 0
    missing: int = 0
    """Jobs that no pilot will take."""
    tried: Sequence[tuple[str, PoolVerdict]] = ()
    shortfall: Shortfall = Shortfall.NONE
    ordered: Counter[int] = field(default_factory=Counter)


def decide_matched(
    facts: IterationFacts, fitting: Fitting, free: Sequence[FreePilots], rng: Random
) -> Iterator[QueueDecision | None]:
    """Decide for all queues; None: a good moment for a pause. `free` keeps the pilots that nobody needs."""
    # Pilots bound to an owner are used before pilots that serve everybody.
    by_binding = sorted(free, key=lambda pilots: (pilots.owner is None, pilots.group is None))
    planner = _Planner(facts, fitting, by_binding, rng)
    needs = []
    for number, queue in enumerate(in_random_order(facts.queues, rng)):
        needs.append(planner.need(queue))
        if not (number + 1) % STEP:
            yield None
    yield from planner.share_out([need for need in needs if need.missing > 0])
    # A need is large. All of them freed at the end would be one long step.
    needs.reverse()
    while needs:
        yield planner.decision(needs.pop())


class _Planner:
    def __init__(
        self, facts: IterationFacts, fitting: Fitting, free: Sequence[FreePilots], rng: Random
    ) -> None:
        self._facts, self._fitting, self._free, self._rng = facts, fitting, free, rng

    def need(self, queue: DemandQueue) -> _Need:
        """Cover the jobs of a queue by free pilots, and find the CEs for the rest."""
        chosen = choose_type(queue.identity, self._facts.settings, self._rng)
        need = _Need(queue, chosen, fitting_types(self._facts, self._fitting, queue, chosen))
        fits = self._fitting.ces(queue, chosen)
        for pilots in self._free:
            left = queue.jobs - need.covered
            if left <= 0:
                break
            if (pilots.started or pilots.waiting) and fits[pilots.ce] and self._serve(queue, pilots):
                beside = self._beside(queue, pilots.ce)
                need.covered += pilots.take(-(-left // beside)) * beside
        need.missing = max(0, queue.jobs - need.covered)
        if need.missing:
            self._choose_pool(need)
        return need

    def _serve(self, queue: DemandQueue, pilots: FreePilots) -> bool:
        """Whether free pilots may take jobs of a queue that fits their CE."""
        pilot_type: PilotType = PRIVATE if pilots.pilot_type == PRIVATE else GENERIC
        return pilots.serves(queue) and self._fitting.may_match(queue, pilots.ce, pilot_type)

    def _choose_pool(self, need: _Need) -> None:
        need.tried = try_pools(self._facts.pools_of(need.queue), self._facts.pools, self._rng)
        ces = self._facts.ces
        if not need.tried or need.tried[-1][1] is not PoolVerdict.TAKES:
            need.types, need.shortfall = {}, Shortfall.NO_POOL
            return
        # A CE is asked through its own pool; every pool that takes pilots may get some.
        takes = {name for name, pool in self._facts.pools.items() if pool.verdict() is PoolVerdict.TAKES}
        types = {place: type_ for place, type_ in need.types.items() if ces[place].pool in takes}
        staying = {place: type_ for place, type_ in types.items() if not ces[place].draining}
        types = staying or types
        need.types = {place: type_ for place, type_ in types.items() if not ces[place].closed}
        if not need.types:
            need.shortfall = (
                Shortfall.CLOSED
                if types
                else obstacle(self._facts, self._fitting, need.queue, need.chosen, takes)
            )

    def share_out(self, needs: Sequence[_Need]) -> Iterator[None]:
        """Give one pilot to each queue in turn, as long as there is room."""
        ces = self._facts.ces
        while needs:
            served = []
            for number, need in enumerate(needs):
                places = [place for place in need.types if ces[place].room > 0]
                if places:
                    place = self._choose_ce(places)
                    ces[place].room -= 1
                    need.ordered[place] += 1
                    need.missing -= self._beside(need.queue, place)
                    if need.missing > 0:
                        served.append(need)
                elif need.types and not need.shortfall:
                    need.shortfall = Shortfall.LITTLE_ROOM if need.ordered else Shortfall.NO_ROOM
                if not (number + 1) % STEP:
                    yield None
            needs = served

    def _choose_ce(self, places: Sequence[int]) -> int:
        """A CE drawn by its room. With list-match the pilot goes to the CE of highest Rank in the drawn one's pool."""
        ces = self._facts.ces
        [drawn] = self._rng.choices(places, [ces[place].room for place in places])
        if not self._facts.settings.pool(ces[drawn].pool).enable_list_match:
            return drawn
        of_pool = [place for place in places if ces[place].pool == ces[drawn].pool]
        highest = max(ces[place].rank for place in of_pool)
        return self._rng.choice([place for place in of_pool if ces[place].rank == highest])

    def decision(self, need: _Need) -> QueueDecision:
        orders = [
            PilotOrder(self._facts.ces[place].name, need.types[place], count)
            for place, count in need.ordered.items()
        ]
        for order_place in need.ordered:
            self._facts.pools[self._facts.ces[order_place].pool].submissions += 1
        demand = MatchedDemand(need.queue.jobs, need.covered)
        shortfall = need.shortfall if demand.pilots else Shortfall.COVERED
        pilot_type = orders[0].pilot_type if orders else None
        return QueueDecision(need.queue, demand, shortfall, pilot_type, need.tried, orders)

    def _beside(self, queue: DemandQueue, place: int) -> int:
        return max(1, concurrent_jobs(queue.identity, self._facts.ces[place].offer))
