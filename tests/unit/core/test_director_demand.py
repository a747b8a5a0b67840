"""How many pilots a queue asks for, against tables that were worked out by hand (rules.md, section 6)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from random import Random
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pilotage.core.ids import QueueId
from pilotage.core.policy.director import Director, SubmitPool
from pilotage.core.policy.model import PilotType
from pilotage.core.provisioning.demand import (
    DemandQueue,
    DemandSums,
    QueueDemand,
    cpu_boost,
    draw_demands,
    waiting_cap,
)
from pilotage.core.provisioning.iteration import (
    CeLoad,
    IterationFacts,
    Mask,
    QueueDecision,
    Shortfall,
    choose_type,
    decide,
    room_for_pilots,
)
from pilotage.core.provisioning.matched import FreePilots, decide_matched
from pilotage.core.provisioning.submit_pools import PoolLoad, PoolVerdict
from pilotage.core.queues.fit import AnyIdentity, Offer, fits
from pilotage.core.queues.identity import QueueIdentity

MAX_CPU = 300000.0


def queue(
    number: int = 1, jobs: int = 1, priority: float = 1.0, waiting: int = 0, **needs: Any
) -> DemandQueue:
    identity = QueueIdentity(needs.pop("owner", "alice"), needs.pop("group", "physics"), **needs)
    return DemandQueue(QueueId(number), identity, priority, jobs, waiting)


def ce(name: str = "one", room: int = 100, **facts: Any) -> CeLoad:
    offer = facts.pop("offer", Offer(facts.pop("site", "here"), name, 1e6))
    types = frozenset(facts.pop("pilot_types", ("private", "generic")))
    return CeLoad(
        name, facts.pop("pool", "Batch"), facts.pop("middleware", "slurm"), offer, types, room, **facts
    )


class PlainFitting:
    """The predicate asked for each queue and CE."""

    def __init__(self, ces: Sequence[CeLoad]) -> None:
        self._ces = ces

    def ces(self, queue: DemandQueue, pilot_type: PilotType) -> Mask:
        offers = [ce.offer for ce in self._ces]
        if pilot_type == "private":
            offers = [replace(offer, pilot_type="private", identities=(AnyIdentity(),)) for offer in offers]
        return np.array([fits(queue.identity, offer, lambda _: True) for offer in offers], dtype=np.bool_)

    def may_match(self, queue: DemandQueue, ce: int, pilot_type: PilotType) -> bool:
        return True

    def is_paused(self, queue: DemandQueue, ce: int) -> bool:
        return False

    def obstacle(self, queue: DemandQueue, pilot_type: PilotType, ces: Sequence[int]) -> Shortfall:
        return Shortfall.NO_CE


def facts(
    queues: Sequence[DemandQueue],
    ces: Sequence[CeLoad],
    settings: Director | None = None,
    pools: Sequence[PoolLoad] = (),
) -> IterationFacts:
    known = {pool.name: pool for pool in (PoolLoad("Batch", 100), *pools)}
    return IterationFacts(settings or Director(), ("Batch",), MAX_CPU, queues, ces, known)


def decided(given: IterationFacts, seed: int = 1) -> list[QueueDecision]:
    return list(decide(given, PlainFitting(given.ces), Random(seed)))


# --- the terms


@pytest.mark.parametrize(
    ("jobs", "waiting", "cap"), [(1, 0, 5), (10, 0, 16), (100, 0, 124), (1, 5, 0), (1, 6, -1), (100, 124, 0)]
)
def test_the_cap_of_waiting_pilots(jobs: int, waiting: int, cap: int) -> None:
    assert waiting_cap(jobs, waiting, Director()) == cap


@pytest.mark.parametrize(
    ("cpu_time", "boost"),
    [(300000, 1.0), (50000, 6.0), (7200, 41.6667), (5000, 41.6667), (500, 41.6667), (0, 41.6667)],
)
def test_the_boost_of_short_jobs(cpu_time: int, boost: float) -> None:
    assert cpu_boost(cpu_time, MAX_CPU, Director()) == pytest.approx(boost, rel=1e-5)


def terms(*queues: DemandQueue, **settings: Any) -> list[QueueDemand]:
    return draw_demands(queues, DemandSums.of(queues), Director(**settings), MAX_CPU, Random(1))


def test_each_term_of_two_queues() -> None:
    """100 pilots by priority and 100 by jobs: 750 : 250 and 30 : 10; factor 1 and 6."""
    long, middle = terms(
        queue(1, jobs=30, priority=750.0, cpu_time=300000), queue(2, jobs=10, priority=250.0, cpu_time=50000)
    )
    assert (long.by_priority, long.by_jobs, long.boost, long.mean) == (75.0, 75.0, 1.0, 150.0)
    assert (middle.by_priority, middle.by_jobs, middle.boost, middle.mean) == (25.0, 25.0, 6.0, 300.0)
    assert (long.cap, middle.cap) == (40, 16)


def test_the_means_add_up_to_twice_the_target_and_to_8333_for_short_queues() -> None:
    long = [queue(number, jobs=number, priority=7.0 / number, cpu_time=300000) for number in range(1, 30)]
    short = [replace(entry, identity=replace(entry.identity, cpu_time=500)) for entry in long]
    assert sum(demand.mean for demand in terms(*long)) == pytest.approx(200)
    assert sum(demand.mean for demand in terms(*short)) == pytest.approx(8333.3, rel=1e-4)


def test_a_sum_of_zero_makes_its_term_zero() -> None:
    [first, second] = terms(queue(1, jobs=3, priority=0.0), queue(2, jobs=1, priority=0.0))
    assert (first.by_priority, second.by_priority) == (0.0, 0.0)
    assert (first.by_jobs, second.by_jobs) == (75.0, 25.0)
    [empty] = draw_demands([queue(1, jobs=0)], DemandSums(0.0, 0), Director(), MAX_CPU, Random(1))
    assert (empty.mean, empty.drawn) == (0.0, 0)


def test_the_draw_is_poisson() -> None:
    """Mean and variance of 20,000 draws with the mean 2."""
    queues = [queue(number, jobs=1, cpu_time=300000) for number in range(20000)]
    demands = terms(*queues, pilots_per_iteration=20000)
    drawn = np.array([demand.drawn for demand in demands])
    assert drawn.mean() == pytest.approx(2.0, abs=0.05)
    assert drawn.var() == pytest.approx(2.0, abs=0.1)


def test_enough_waiting_pilots_leave_nothing_to_submit() -> None:
    [decision] = decided(facts([queue(jobs=1, waiting=5)], [ce()]))
    assert (decision.submitted, decision.shortfall) == (0, Shortfall.COVERED)


# --- the type of pilots


@pytest.mark.parametrize(
    ("needs", "fraction", "expected"),
    [
        ({"force_generic": True}, 1.0, "generic"),
        ({"pilot_types": frozenset({"private"})}, 0.0, "private"),
        ({}, 0.0, "generic"),
        ({}, 1.0, "private"),
        # Submission refuses the two together; ForceGeneric comes first.
        ({"force_generic": True, "pilot_types": frozenset({"private"})}, 1.0, "generic"),
    ],
)
def test_private_or_generic(needs: dict[str, Any], fraction: float, expected: str) -> None:
    settings = Director(private_pilot_fraction=fraction)
    for seed in range(20):
        assert choose_type(queue(**needs).identity, settings, Random(seed)) == expected


def test_the_private_fraction_is_the_fraction_of_private_pilots() -> None:
    settings, rng = Director(private_pilot_fraction=0.2), Random(4)
    chosen = Counter(choose_type(queue().identity, settings, rng) for _ in range(5000))
    assert chosen["private"] == pytest.approx(1000, abs=120)


def test_pilots_have_a_type_that_the_ce_takes() -> None:
    only_private = ce("bound", pilot_types=("private",))
    for needs, orders in (
        ({}, {"private"}),
        ({"force_generic": True}, set()),
        ({"pilot_types": frozenset({"private"})}, {"private"}),
    ):
        for seed in range(10):
            only_private.room = 100
            [decision] = decided(facts([queue(jobs=9, **needs)], [only_private]), seed)
            assert {order.pilot_type for order in decision.orders} == orders


# --- submit pools


def test_the_first_pool_in_random_order_takes_all_pilots() -> None:
    pools = [PoolLoad("A", 10), PoolLoad("B", 10)]
    taken = Counter[str]()
    for seed in range(200):
        ces = [ce("a", pool="A"), ce("b", pool="B")]
        given = facts(
            [queue(jobs=5, submit_pools=frozenset("AB"))], ces, pools=[replace(pool) for pool in pools]
        )
        [decision] = decided(given, seed)
        assert {order.ce for order in decision.orders} == {decision.pool.lower()}
        taken[decision.pool] += 1
    assert taken["A"] == pytest.approx(100, abs=35)


@pytest.mark.parametrize(
    ("pool", "verdict"),
    [
        (None, PoolVerdict.UNKNOWN),
        (PoolLoad("A", 10, enabled=False), PoolVerdict.DISABLED),
        (PoolLoad("A", 10, handled=False), PoolVerdict.UNHANDLED),
        (PoolLoad("A", 10, submissions=10), PoolVerdict.FULL),
    ],
)
def test_a_queue_without_a_pool_gets_nothing_and_the_reason_is_told(
    pool: PoolLoad | None, verdict: PoolVerdict
) -> None:
    known = [] if pool is None else [pool]
    [decision] = decided(
        facts([queue(jobs=5, submit_pools=frozenset({"A"}))], [ce("a", pool="A")], pools=known)
    )
    assert (decision.shortfall, decision.tried, decision.orders) == (Shortfall.NO_POOL, [("A", verdict)], ())


def test_a_pool_is_full_after_its_number_of_submissions_in_one_iteration() -> None:
    queues = [queue(number, jobs=5) for number in range(6)]
    decisions = decided(facts(queues, [ce(room=1000)], pools=[PoolLoad("Batch", 4)]))
    assert Counter(decision.shortfall for decision in decisions) == {Shortfall.NONE: 4, Shortfall.NO_POOL: 2}


# --- CEs


def test_no_pilot_where_the_queue_does_not_fit() -> None:
    given = [
        ce("elsewhere", site="there"),
        ce("other", middleware="condor"),
        ce("short", offer=Offer("here", "short", 100.0)),
        ce("closed", closed="disabled"),
        ce("full", room=0),
        ce("good"),
    ]
    wanted = queue(jobs=9, sites=frozenset({"here"}), grid_middlewares=frozenset({"Slurm"}), cpu_time=500)
    [decision] = decided(facts([wanted], given))
    assert {order.ce for order in decision.orders} == {"good"}
    for left, shortfall in ((5, Shortfall.NO_ROOM), (4, Shortfall.CLOSED), (3, Shortfall.NO_CE)):
        [decision] = decided(facts([wanted], given[:left]))
        assert decision.shortfall is shortfall


def test_a_draining_site_gets_pilots_only_for_queues_that_can_run_nowhere_else() -> None:
    given = [ce("leaving", site="a", draining=True), ce("staying", site="b")]
    bound = queue(1, jobs=5, sites=frozenset({"a"}))
    free = queue(2, jobs=5)
    orders = {d.queue.id: {o.ce for o in d.orders} for d in decided(facts([bound, free], given))}
    assert orders == {1: {"leaving"}, 2: {"staying"}}


def test_several_ces_share_the_pilots_by_their_room() -> None:
    taken = Counter[str]()
    for seed in range(300):
        [decision] = decided(facts([queue(jobs=10)], [ce("a", room=60), ce("b", room=20)]), seed)
        taken.update({order.ce: order.pilots for order in decision.orders})
    assert taken["a"] / taken.total() == pytest.approx(0.75, abs=0.03)


def test_with_list_match_the_highest_rank_is_filled_first() -> None:
    settings = Director(pools={"Batch": SubmitPool(enable_list_match=True)})
    ces = [ce("a", room=3, rank=-5.0), ce("b", room=4, rank=-1.0), ce("c", room=50, rank=-9.0)]
    [decision] = decided(facts([queue(jobs=10)], ces, settings))
    assert [(order.ce, order.pilots) for order in decision.orders] == [("b", 4), ("a", 3), ("c", 9)]
    alike = [ce("a", room=50), ce("b", room=50)]
    decisions = [decided(facts([queue(jobs=10)], alike, settings), seed)[0] for seed in range(30)]
    assert {order.ce for decision in decisions for order in decision.orders[:1]} == {"a", "b"}


def test_wide_pilots_are_divided_by_the_jobs_that_run_beside_each_other() -> None:
    """A cap of 16 single pilots for 10 jobs: 8 cores hold four jobs of 2 cores each, hence 4 pilots."""
    wide = ce(offer=Offer("here", "one", 1e6, processors=8))
    [decision] = decided(facts([queue(jobs=10, processors=2)], [wide]))
    assert decision.demand.pilots == 16
    assert decision.submitted == 4
    [decision] = decided(facts([queue(jobs=10, processors=3)], [wide]))
    assert decision.submitted == 8


# --- over time


def test_an_iteration_with_the_same_seed_decides_the_same() -> None:
    def made() -> IterationFacts:
        queues = [queue(number, jobs=number % 7 + 1, priority=number) for number in range(1, 60)]
        return facts(queues, [ce(name, room=30) for name in "abcde"])

    assert decided(made(), 7) == decided(made(), 7)
    assert decided(made(), 7) != decided(made(), 8)


queues_drawn = st.lists(
    st.tuples(
        st.integers(0, 400),
        st.floats(0, 1e9, allow_nan=False),
        st.integers(0, 300),
        st.sampled_from([500, 5000, 50000, 300000]),
        st.integers(1, 4),
        st.sampled_from(["", "private", "generic"]),
    ),
    max_size=12,
)


@given(
    queues_drawn,
    st.lists(st.tuples(st.integers(0, 50), st.integers(1, 8)), max_size=5),
    st.integers(0, 2**32),
    st.booleans(),
)
def test_never_more_than_a_cap_or_a_room(
    drawn: list[tuple[int, float, int, int, int, str]], rooms: list[tuple[int, int]], seed: int, ranked: bool
) -> None:
    queues = [
        queue(
            number,
            jobs,
            priority,
            waiting,
            cpu_time=cpu,
            processors=cores,
            force_generic=type_ == "generic",
            pilot_types=frozenset({"private"} if type_ == "private" else ()),
        )
        for number, (jobs, priority, waiting, cpu, cores, type_) in enumerate(drawn)
    ]
    ces = [
        ce(f"ce{number}", room, offer=Offer("here", f"ce{number}", 1e6, processors=cores))
        for number, (room, cores) in enumerate(rooms)
    ]
    settings = Director(pools={"Batch": SubmitPool(enable_list_match=ranked)})
    ordered = Counter[str]()
    widths = {f"ce{number}": cores for number, (_, cores) in enumerate(rooms)}
    for decision in decided(facts(queues, ces, settings), seed):
        cores = decision.queue.identity.processors
        units = [order.pilots * max(1, widths[order.ce] // cores) for order in decision.orders]
        widest = max((max(1, widths[order.ce] // cores) for order in decision.orders), default=1)
        # A wide pilot is never cut: the last one may cover less than it holds.
        assert sum(units) < max(0, decision.demand.cap) + widest
        for order in decision.orders:
            assert decision.queue.identity.processors <= widths[order.ce]
            if decision.queue.identity.force_generic:
                assert order.pilot_type == "generic"
            ordered[order.ce] += order.pilots
    for number, (room, _) in enumerate(rooms):
        assert ordered[f"ce{number}"] <= room


def test_a_month_of_iterations_never_exceeds_a_cap() -> None:
    """Iterations of an hour in virtual time: jobs come and go, pilots start and end, caps hold at each instant."""
    rng, settings = Random(11), Director()
    jobs = {number: rng.randrange(60) for number in range(30)}
    waiting: dict[tuple[int, str], int] = {}
    running = Counter[str]()
    caps = {"a": (5, 20), "b": (40, 60), "c": (1, 1)}
    for _ in range(30 * 24):
        of_ce = Counter[str]()
        for (_, name), pilots in waiting.items():
            of_ce[name] += pilots
        ces = [ce(name, room_for_pilots(of_ce[name], running[name], *caps[name])) for name in caps]
        queues = [
            queue(
                n,
                count,
                rng.random(),
                sum(p for (q, _), p in waiting.items() if q == n),
                cpu_time=rng.choice((500, 300000)),
            )
            for n, count in jobs.items()
            if count
        ]
        before = {entry.id: entry for entry in queues}
        for decision in decided(facts(queues, ces, settings), rng.randrange(2**32)):
            for order in decision.orders:
                place = int(decision.queue.id), order.ce
                waiting[place] = waiting.get(place, 0) + order.pilots
            now_waiting = sum(p for (q, _), p in waiting.items() if q == decision.queue.id)
            entry = before[decision.queue.id]
            assert now_waiting <= max(entry.waiting, int(1.2 * entry.jobs) + 4)
        for name, (most_waiting, most_running) in caps.items():
            in_line = sum(p for (_, c), p in waiting.items() if c == name)
            assert in_line <= most_waiting
            assert in_line + running[name] <= most_running
        for place in list(waiting):
            started = rng.randrange(waiting[place] + 1)
            waiting[place] -= started
            running[place[1]] += started
            jobs[place[0]] = max(0, jobs[place[0]] - started)
        running = Counter({name: rng.randrange(count + 1) for name, count in running.items()})
        jobs[rng.randrange(30)] += rng.randrange(40)


# --- matched demand


def matched(
    given: IterationFacts, free: Sequence[FreePilots] = (), seed: int = 1
) -> dict[int, tuple[int, dict[str, int]]]:
    """Queue → covered jobs, and pilots by CE."""
    decisions = decide_matched(given, PlainFitting(given.ces), free, Random(seed))
    return {
        int(decision.queue.id): (
            getattr(decision.demand, "covered", 0),
            {order.ce: order.pilots for order in decision.orders},
        )
        for decision in decisions
        if decision is not None
    }


def test_each_waiting_job_is_counted_once_over_all_ces() -> None:
    answer = matched(facts([queue(jobs=3)], [ce("a", room=9), ce("b", room=9)]))
    assert sum(answer[1][1].values()) == 3


def test_pilots_without_a_job_cover_waiting_jobs_at_any_ce() -> None:
    ces = [ce("a"), ce("b")]
    free = [FreePilots(1, "generic", started=1, waiting=1)]
    answer = matched(facts([queue(jobs=3)], ces), free)
    assert answer[1][0] == 2
    assert sum(answer[1][1].values()) == 1
    assert free[0].waiting == 0


def test_waiting_pilots_that_cover_nothing_are_left_over() -> None:
    free = [
        FreePilots(0, "private", started=0, waiting=4, owner="bob", group="physics"),
        FreePilots(0, "generic", started=0, waiting=3),
    ]
    assert matched(facts([queue(jobs=2)], [ce()]), free)[1] == (2, {})
    assert [pilots.waiting for pilots in free] == [4, 1]


def test_bound_pilots_cover_their_owner_before_free_ones_do() -> None:
    free = [
        FreePilots(0, "generic", started=0, waiting=1),
        FreePilots(0, "private", started=0, waiting=1, owner="alice", group="physics"),
    ]
    assert matched(facts([queue(jobs=1)], [ce()]), free)[1] == (1, {})
    assert sorted(pilots.waiting for pilots in free) == [0, 1]
    assert free[0].waiting == 1


def test_one_pilot_for_each_queue_before_a_second_one_for_any() -> None:
    queues = [queue(number, jobs=10) for number in range(5)]
    answer = matched(facts(queues, [ce(room=7)]))
    assert sorted(sum(orders.values()) for _, orders in answer.values()) == [1, 1, 1, 2, 2]


def test_names_of_the_document_are_the_names_of_the_policy() -> None:
    names = {field.encode_name for field in msgspec.structs.fields(Director)}
    assert names >= {
        *(
            "pilotsPerIteration",
            "lowestCPUBoost",
            "extraPilotFraction",
            "extraPilots",
            "maxPilotWaitingHours",
        ),
        *("SubmitPools", "DefaultSubmitPools", "GenericPilotDN", "GenericPilotGroup", "PrivatePilotFraction"),
    }
