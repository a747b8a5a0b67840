"""The plan of a CE: examples, properties of any plan, and a machine on which every queue is served in the end."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pilotage.core.ids import PilotId, QueueId
from pilotage.core.provisioning.plan import (
    PATIENCE,
    Capacity,
    LivePilot,
    Plan,
    PlannedPilot,
    ProvisioningFacts,
    Succession,
    WaitingQueue,
    decided_above,
    plan,
)

NOW = 1000.0


def planned(facts: ProvisioningFacts, now: float = NOW, seed: int = 1) -> Plan:
    return plan(facts, now, Random(seed))


def pilot(number: int, processors: int = 1, **more: object) -> LivePilot:
    return LivePilot(PilotId(number), processors, **more)  # type: ignore[arg-type]


def queue(
    number: int, jobs: int = 1, processors: int = 1, owner: str = "alice", **more: object
) -> WaitingQueue:
    return WaitingQueue(QueueId(number), owner, jobs, processors, **more)  # type: ignore[arg-type]


# --- examples


def test_one_pilot_for_each_job_that_no_idle_pilot_covers() -> None:
    facts = ProvisioningFacts(Capacity(8), (pilot(1), pilot(2, has_job=True)), (queue(1, jobs=3),))
    assert planned(facts).orders == (PlannedPilot(1, QueueId(1)),) * 2


def test_an_idle_pilot_bound_to_another_owner_covers_nothing() -> None:
    bound = pilot(1, only_owner="bob")
    facts = ProvisioningFacts(Capacity(8), (bound,), (queue(1),))
    assert len(planned(facts).orders) == 1
    assert planned(replace(facts, pilots=(replace(bound, only_owner="alice"),))).orders == ()


def test_an_idle_pilot_covers_one_job_of_all_queues() -> None:
    facts = ProvisioningFacts(Capacity(8), (pilot(1),), (queue(1), queue(2)))
    assert len(planned(facts).orders) == 1


def test_the_narrowest_idle_pilot_covers_a_job() -> None:
    pilots = (pilot(1, 4), pilot(2, 1))
    facts = ProvisioningFacts(Capacity(8), pilots, (queue(1),))
    assert planned(facts).orders == ()
    both = replace(facts, queues=(queue(1), queue(2, processors=4)))
    assert {planned(both, seed=seed).orders for seed in range(20)} == {()}


def test_memory_widens_a_pilot() -> None:
    facts = ProvisioningFacts(Capacity(8, 16384), (), (queue(1, memory=4096),))
    assert planned(facts).orders == (PlannedPilot(2, QueueId(1)),)


def test_a_successor_comes_first_and_is_its_owners() -> None:
    turns = (Succession(PilotId(7), "bob"),)
    facts = ProvisioningFacts(Capacity(1), (), (queue(1, jobs=5), queue(2, owner="bob")), turns)
    for seed in range(20):
        assert planned(facts, seed=seed).orders == (PlannedPilot(1, QueueId(2), PilotId(7)),)


def test_a_successor_for_whom_nothing_waits_gives_its_place_to_others() -> None:
    facts = ProvisioningFacts(Capacity(1), (), (queue(1),), (Succession(PilotId(7), "bob"),))
    assert planned(facts).orders == (PlannedPilot(1, QueueId(1)),)


def full(cores: int, wide: int, since: Mapping[int, float]) -> ProvisioningFacts:
    """Busy pilots of one core on every core, jobs for them, and a queue (1) that is `wide`."""
    pilots = tuple(pilot(number, has_job=True) for number in range(cores))
    queues = (queue(1, processors=wide), queue(2, jobs=100))
    starving = {QueueId(number): instant for number, instant in since.items()}
    return ProvisioningFacts(Capacity(cores), pilots, queues, (), starving)


def test_a_wide_queue_starves_before_pilots_are_drained_for_it() -> None:
    facts = full(4, 3, {})
    assert planned(facts) == Plan(starving_since={QueueId(1): NOW})
    later = replace(facts, starving_since={QueueId(1): NOW})
    assert planned(later, NOW + PATIENCE - 0.1).drains == ()
    assert len(planned(later, NOW + PATIENCE).drains) == 3


def test_a_clock_that_is_set_back_starts_the_patience_again() -> None:
    facts = full(4, 3, {1: NOW})
    assert planned(facts, NOW - 500.0) == Plan(starving_since={QueueId(1): NOW - 500.0})


def test_pilots_that_leave_already_are_room_to_come() -> None:
    facts = full(4, 3, {1: NOW - PATIENCE})
    first = planned(facts)
    leaving = tuple(replace(one, leaves=one.id in first.drains) for one in facts.pilots)
    assert planned(replace(facts, pilots=leaving)).drains == ()


def test_a_pilot_with_a_successor_is_no_room() -> None:
    facts = full(4, 4, {1: NOW - PATIENCE})
    first, *others = facts.pilots
    gives_way = replace(first, leaves=True, has_successor=True)
    assert set(planned(replace(facts, pilots=(gives_way, *others))).drains) == {one.id for one in others}


def test_processors_that_come_free_are_kept_for_the_queue_that_starves() -> None:
    facts = full(4, 3, {1: NOW - PATIENCE})
    two_left = replace(facts, pilots=(pilot(1, has_job=True), pilot(2, has_job=True, leaves=True)))
    assert planned(two_left).orders == ()
    one_left = replace(facts, pilots=(pilot(1, has_job=True),))
    assert planned(one_left).orders == (PlannedPilot(3, QueueId(1)),)


def test_room_for_the_widest_serves_the_narrower_ones_too() -> None:
    facts = full(6, 2, {1: NOW - 90.0, 3: NOW - PATIENCE})
    facts = replace(facts, queues=(*facts.queues, queue(3, processors=4)))
    decided = planned(facts)
    assert len(decided.drains) == 4
    assert set(decided.starving_since) == {QueueId(3)}


# --- properties of any plan

OWNERS = st.sampled_from(["alice", "bob"])


@st.composite
def any_facts(draw: st.DrawFn) -> ProvisioningFacts:
    cores = draw(st.integers(1, 12))
    pilots = []
    for number in range(draw(st.integers(0, 8))):
        leaves = draw(st.booleans())
        pilots.append(
            LivePilot(
                PilotId(number),
                draw(st.integers(1, 6)),
                draw(st.none() | OWNERS),
                draw(st.booleans()),
                leaves,
                leaves and draw(st.booleans()),
            )
        )
    queues = [
        WaitingQueue(
            QueueId(number),
            draw(OWNERS),
            draw(st.integers(0, 20)),
            draw(st.integers(1, 14)),
            draw(st.sampled_from([0, 0, 1000, 9000])),
            draw(st.booleans()),
        )
        for number in range(draw(st.integers(0, 6)))
    ]
    turns = [Succession(PilotId(100 + number), draw(OWNERS)) for number in range(draw(st.integers(0, 3)))]
    starving = draw(
        st.dictionaries(
            st.sampled_from([one.id for one in queues]), st.sampled_from([0.0, NOW - 1.0, NOW + 9.0])
        )
        if queues
        else st.just({})
    )
    capacity = Capacity(cores, draw(st.sampled_from([0, 8000])))
    return ProvisioningFacts(capacity, tuple(pilots), tuple(queues), tuple(turns), starving)


seeds = st.integers(0, 10**6)


@given(any_facts(), seeds)
def test_equal_facts_and_chance_give_an_equal_plan(facts: ProvisioningFacts, seed: int) -> None:
    assert planned(facts, seed=seed) == planned(replace(facts), seed=seed)


@given(any_facts(), seeds)
def test_a_plan_needs_no_queue_for_which_nothing_can_be_decided(facts: ProvisioningFacts, seed: int) -> None:
    above = decided_above(facts.capacity, facts.pilots)
    wanting = tuple(one for one in facts.queues if facts.capacity.width(one) > above)
    assert planned(facts, seed=seed) == planned(replace(facts, queues=wanting), seed=seed)
    if above:
        assert not planned(facts, seed=seed).orders, "a full CE starts no pilot"


@given(any_facts(), seeds)
def test_never_more_processors_than_the_capacity(facts: ProvisioningFacts, seed: int) -> None:
    used = sum(one.processors for one in facts.pilots)
    ordered = sum(order.processors for order in planned(facts, seed=seed).orders)
    assert ordered <= max(0, facts.capacity.processors - used)


@given(any_facts(), seeds)
def test_orders_are_for_jobs_that_wait_in_queues_that_do_not_pause(
    facts: ProvisioningFacts, seed: int
) -> None:
    queues = {one.id: one for one in facts.queues}
    orders = planned(facts, seed=seed).orders
    for order in orders:
        assert not queues[order.queue].paused
        assert order.processors == facts.capacity.width(queues[order.queue])
    for one in facts.queues:
        assert sum(order.queue == one.id for order in orders) <= one.jobs


@given(any_facts(), seeds)
def test_successors_are_of_the_owner_whose_turn_it_is(facts: ProvisioningFacts, seed: int) -> None:
    owners = {turn.pilot: turn.owner for turn in facts.successions}
    queues = {one.id: one.owner for one in facts.queues}
    following = [order for order in planned(facts, seed=seed).orders if order.follows is not None]
    assert len({order.follows for order in following}) == len(following)
    for order in following:
        assert order.follows is not None
        assert owners[order.follows] == queues[order.queue]


@given(any_facts(), seeds)
def test_only_pilots_that_make_room_are_drained(facts: ProvisioningFacts, seed: int) -> None:
    decided = planned(facts, seed=seed)
    if not decided.drains:
        return
    pilots = {one.id: one for one in facts.pilots}
    queues = {one.id: one for one in facts.queues}
    assert len(set(decided.drains)) == len(decided.drains)
    assert not any(pilots[drained].leaves for drained in decided.drains)
    # The queues that have starved for long enough; without the last pilot there would be no room for one of them.
    overdue = [
        facts.capacity.width(queues[id_])
        for id_, since in decided.starving_since.items()
        if NOW - since >= PATIENCE
    ]
    assert overdue
    widest = max(overdue)
    ordered = sum(order.processors for order in decided.orders)
    free = facts.capacity.processors - sum(one.processors for one in facts.pilots) - ordered
    coming = sum(one.processors for one in facts.pilots if one.leaves and not one.has_successor)
    without_last = sum(pilots[drained].processors for drained in decided.drains[:-1])
    assert free + coming + without_last < widest
    staying = [one for one in facts.pilots if not one.leaves]
    assert all(one.processors < widest for one in staying)


@given(any_facts(), seeds)
def test_no_processor_idles_while_a_job_fits_it_and_nothing_starves(
    facts: ProvisioningFacts, seed: int
) -> None:
    decided = planned(facts, seed=seed)
    if any(NOW - since >= PATIENCE for since in decided.starving_since.values()):
        return
    free = facts.capacity.processors - sum(one.processors for one in facts.pilots)
    free -= sum(order.processors for order in decided.orders)
    idle = sum(not one.has_job and not one.leaves for one in facts.pilots)
    for one in facts.queues:
        uncovered = one.jobs - idle - sum(order.queue == one.id for order in decided.orders)
        assert one.paused or uncovered <= 0 or facts.capacity.width(one) > free


# --- a machine in virtual time


@dataclass
class Machine:
    """Pilots that take any job that fits until they are told to leave, with plans carried out each second."""

    capacity: Capacity
    queues: tuple[WaitingQueue, ...]
    longest_job: int
    rng: Random
    now: float = 0.0
    pilots: dict[PilotId, LivePilot] = field(default_factory=dict)
    job_ends: dict[PilotId, float] = field(default_factory=dict)
    starving: Mapping[QueueId, float] = field(default_factory=dict)
    numbers: Iterator[int] = field(default_factory=lambda: iter(range(10**6)))

    def cycle(self) -> None:
        self.now += 1.0
        for id_, one in list(self.pilots.items()):
            self._work(id_, one)
        pilots = tuple(self.pilots.values())
        decided = plan(
            ProvisioningFacts(self.capacity, pilots, self.queues, (), self.starving), self.now, self.rng
        )
        self.starving = decided.starving_since
        for drained in decided.drains:
            self.pilots[drained] = replace(self.pilots[drained], leaves=True)
        for order in decided.orders:
            id_ = PilotId(next(self.numbers))
            self.pilots[id_] = LivePilot(id_, order.processors)
        assert sum(one.processors for one in self.pilots.values()) <= self.capacity.processors

    def _work(self, id_: PilotId, one: LivePilot) -> None:
        if self.job_ends.get(id_, 0.0) > self.now:
            return
        fits = any(self.capacity.width(waiting) <= one.processors for waiting in self.queues)
        if one.leaves or not fits:
            del self.pilots[id_]
            return
        self.job_ends[id_] = self.now + self.rng.randint(1, self.longest_job)
        self.pilots[id_] = replace(one, has_job=True)

    def wide_enough(self, waiting: WaitingQueue) -> bool:
        width = self.capacity.width(waiting)
        return any(one.processors >= width for one in self.pilots.values() if not one.leaves)


@given(
    st.integers(2, 8).flatmap(
        lambda cores: st.tuples(st.just(cores), st.lists(st.integers(1, cores), min_size=1, max_size=5))
    ),
    st.sampled_from([1, 10, 60]),
    seeds,
)
def test_every_queue_that_fits_has_a_pilot_in_the_end(
    machine: tuple[int, list[int]], longest_job: int, seed: int
) -> None:
    """All queues have jobs for ever, so processors never come free unless somebody makes room."""
    cores, widths = machine
    queues = tuple(queue(number, jobs=50, processors=width) for number, width in enumerate(widths))
    pool = Machine(Capacity(cores), queues, longest_job, Random(seed))
    unserved = set(queues)
    for _ in range(len(queues) * int(PATIENCE + longest_job + 5)):
        pool.cycle()
        unserved -= {waiting for waiting in unserved if pool.wide_enough(waiting)}
        if not unserved:
            return
    pytest.fail(f"never served: {unserved}")
