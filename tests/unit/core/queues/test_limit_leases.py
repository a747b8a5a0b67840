"""Limits that several servers share: never exceeded, in whatever order servers borrow, start, learn of ends and die."""

from __future__ import annotations

from dataclasses import dataclass, field

from hypothesis import given, settings
from hypothesis import strategies as st

from pilotage.core.queues import limit_leases
from pilotage.core.queues.limit_leases import Allocation, UnleasedRoom
from pilotage.core.queues.limits import Limit

SERVERS = ("a", "b", "c")


@dataclass
class World:
    """One limit, its blocks as the store has them, and the jobs that are there."""

    limit: Limit
    now: float = 1000.0
    held: int = 0
    lowest_allowed: int = 0
    shared: UnleasedRoom | None = None
    having: dict[str, Allocation] = field(default_factory=dict)
    begun: list[float] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.shared = limit_leases.establish(self.limit, 0, self.now)
        self.having = {name: Allocation() for name in SERVERS}

    def borrow(self, who: str) -> None:
        mine = self.having.setdefault(who, Allocation())
        others = [block for name, block in self.having.items() if name != who]
        assert self.shared is not None
        self.shared, self.having[who] = limit_leases.lend(self.limit, self.shared, mine, others, self.now)

    def give_back(self, who: str) -> None:
        assert self.shared is not None
        if who in self.having:
            self.shared, self.having[who] = limit_leases.give_back(
                self.limit, self.shared, self.having[who], Allocation()
            )

    def start(self, who: str) -> None:
        mine = self.having.get(who, Allocation())
        if limit_leases.may_start(self.limit, self.shared, mine):
            self.having[who] = limit_leases.record_start(self.limit, mine, self.now)
            self.held += 1
            self.begun.append(self.now)
            assert self.limit.running is None or self.held <= self.limit.running

    def end(self, who: str) -> None:
        """Whichever server learns of it; a job may have been started by another one."""
        if self.held and who in self.having:
            self.held -= 1
            self.having[who] = limit_leases.record_end(self.limit, self.having[who])

    def die(self, who: str) -> None:
        """What it held in memory beyond its rows was never committed."""
        assert self.shared is not None
        if who in self.having:
            self.shared = limit_leases.evict(self.shared, self.having.pop(who))

    def recount(self, who: str) -> None:
        assert self.shared is not None
        counted = limit_leases.recount(self.limit, self.shared, self.held, self.having.values())
        # The books were right already.
        assert counted == self.shared
        self.shared = counted

    def wait(self, seconds: float) -> None:
        self.now += seconds


ACTIONS = st.tuples(
    st.sampled_from(["borrow", "start", "start", "end", "give_back", "die", "recount"]),
    st.sampled_from(SERVERS),
    st.floats(0.0, 7.0),
)


@settings(max_examples=6 * settings().max_examples, deadline=None)
@given(st.integers(1, 12), st.lists(ACTIONS, max_size=120))
def test_never_more_jobs_than_the_limit_and_no_place_is_lost(
    running: int, actions: list[tuple[str, str, float]]
) -> None:
    world = World(Limit("owner", "alice", site="here", running=running))
    for verb, who, seconds in actions:
        world.wait(seconds)
        getattr(world, verb)(who)
        assert world.shared is not None
        assert world.shared.free + sum(b.free for b in world.having.values()) + world.held == running


@settings(max_examples=6 * settings().max_examples, deadline=None)
@given(st.floats(0.1, 20.0), st.integers(1, 4), st.lists(ACTIONS, max_size=120))
def test_starts_keep_their_distance(delay: float, burst: int, actions: list[tuple[str, str, float]]) -> None:
    world = World(Limit("owner", "alice", site="here", delay=delay, burst=burst))
    for verb, who, seconds in actions:
        world.wait(seconds)
        getattr(world, verb)(who)
    begun = world.begun
    for first in range(len(begun)):
        for last in range(first, len(begun)):
            # What one bucket of `burst` that fills once per `delay` lets through.
            assert last - first + 1 <= burst + (begun[last] - begun[first]) / delay + 1e-6


@settings(max_examples=4 * settings().max_examples, deadline=None)
@given(st.integers(0, 8), st.integers(0, 8), st.lists(ACTIONS, max_size=60), st.lists(ACTIONS, max_size=60))
def test_a_lowered_limit_is_paid_back_before_anything_starts(
    before: int, after: int, first: list[tuple[str, str, float]], then: list[tuple[str, str, float]]
) -> None:
    world = World(Limit("owner", "alice", site="here", running=before))
    for verb, who, _ in first:
        getattr(world, verb)(who)
    assert world.shared is not None
    world.limit = Limit("owner", "alice", site="here", running=after)
    world.shared = limit_leases.replace_limit(world.limit, world.shared)
    for who in SERVERS:
        world.give_back(who)
    # `start` asserts that no job begins above the new number.
    for verb, who, _ in then:
        getattr(world, verb)(who)
        assert world.shared.free + sum(b.free for b in world.having.values()) + world.held == after


def test_a_borrower_leaves_something_for_the_others_and_asks_again_only_when_it_has_nothing() -> None:
    world = World(Limit("owner", "alice", site="here", running=10))
    world.borrow("a")
    assert world.having["a"].free == 4
    world.borrow("a")
    assert world.having["a"].free == 4
    world.borrow("b")
    world.borrow("c")
    assert [world.having[name].free for name in SERVERS] == [4, 2, 2]
    assert world.shared is not None
    assert world.shared.free == 2


def test_a_limit_that_nobody_has_counted_is_closed() -> None:
    limit = Limit("owner", "alice", site="here", running=3)
    assert not limit_leases.may_start(limit, None, Allocation(free=1))
    uncounted = UnleasedRoom(None, 0, 1.0, 0.0)
    assert limit_leases.replace_limit(limit, uncounted) == uncounted
    assert not limit_leases.may_start(limit, uncounted, Allocation(free=1))
    counted = limit_leases.recount(limit, uncounted, 2, [Allocation(free=1)])
    assert counted == UnleasedRoom(3, 0, 1.0, 0.0)
    assert limit_leases.may_start(limit, counted, Allocation(free=1))


def test_a_limit_of_starts_opens_when_the_delay_is_over() -> None:
    world = World(Limit("owner", "alice", site="here", delay=10.0))
    world.borrow("a")
    world.start("a")
    world.wait(9.9)
    world.borrow("b")
    world.start("b")
    assert len(world.begun) == 1
    world.wait(0.2)
    world.borrow("b")
    world.start("b")
    assert len(world.begun) == 2
