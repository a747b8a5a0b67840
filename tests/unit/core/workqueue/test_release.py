"""The release: its order, its limits, and the jobs that overtake."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pilotage.core.jobs.request_types import TYPE_PRIORITIES
from pilotage.core.sites import SiteState
from pilotage.core.workqueue.release import (
    AgentLoads,
    JobRelease,
    Limits,
    ReleaseGroup,
    ReleasePass,
    ReleaseRefusal,
    ReleaseRules,
    SiteLoad,
    limits_of,
    reached_limit,
    usable_sites,
)

WIDE = Limits(10**6, 10**6, 10**6, 10**6)


def loads(limits: Limits, rules: ReleaseRules | None = None) -> AgentLoads:
    return AgentLoads(lambda _site, _type: limits, rules or ReleaseRules())


def group(
    jobs: range | list[int],
    *,
    job_type: str = "Processing",
    priority: int = 100,
    agent: int = 1,
    sites: str = "A",
) -> ReleaseGroup:
    return ReleaseGroup(job_type, priority, agent, frozenset(sites), iter(jobs))


def released(groups: list[ReleaseGroup], held: AgentLoads, limit: int = 10**6) -> list[JobRelease]:
    return begun(groups, held).take(limit)


def begun(groups: list[ReleaseGroup], held: AgentLoads, seed: int = 1) -> ReleasePass:
    one_pass = ReleasePass(held, Random(seed))
    for place, group in enumerate(groups):
        one_pass.add(place, group)
    return one_pass


def test_type_then_priority_then_id() -> None:
    groups = [
        group([5, 9], priority=10),
        group([1, 7], priority=10),
        group([8], priority=900),
        group([6], job_type="Merge", priority=1),
        group([2], job_type="Cleanup", priority=1),
    ]
    assert [release.job for release in released(groups, loads(WIDE))] == [6, 2, 8, 1, 5, 7, 9]


def test_a_pass_continues_where_it_stopped() -> None:
    one_pass = begun([group(range(0, 10, 2)), group(range(1, 10, 2))], loads(WIDE))
    taken: list[int] = []
    while part := one_pass.take(3):
        taken += [release.job for release in part]
    assert taken == list(range(10))


def test_nothing_is_read_of_a_group_without_room() -> None:
    full = loads(Limits(0, 5, 0, 5))

    def jobs() -> Iterator[int]:
        raise AssertionError("its jobs were read")
        yield 1

    assert released([ReleaseGroup("Processing", 1, 1, frozenset("A"), jobs())], full) == []


def test_a_low_priority_fills_the_sites_that_a_high_one_cannot_use() -> None:
    held = loads(Limits(3, 5, 3, 5))
    taken = released([group(range(10), priority=900, sites="A"), group(range(10, 20), sites="AB")], held)
    assert Counter((release.group, release.site) for release in taken) == {(0, "A"): 3, (1, "B"): 3}


def test_a_higher_priority_exceeds_the_pending_limits_by_the_overflow_and_no_more() -> None:
    held = loads(Limits(50, 200, 45, 200))
    assert len(released([group(range(100), priority=10)], held)) == 45
    assert len(released([group(range(100, 200), priority=20)], held)) == 9
    assert len(released([group(range(200, 300), priority=10)], held)) == 0
    assert len(released([group(range(300, 400), priority=30)], held)) == 0


def test_the_overflow_does_not_depend_on_the_size_of_the_passes() -> None:
    held = loads(Limits(50, 200, 45, 200))
    released([group(range(100), priority=10)], held)
    job, taken = 100, 0
    while released([group([job], priority=20)], held):
        job, taken = job + 1, taken + 1
    assert taken == 9


def test_merges_never_overflow() -> None:
    held = loads(Limits(10, 10, 10, 10))
    released([group(range(20), job_type="Merge", priority=1)], held)
    assert released([group(range(20, 40), job_type="Merge", priority=900)], held) == []
    assert len(released([group(range(40, 60), job_type="Skim", priority=900)], held)) == 0


def test_agents_are_limited_apart_and_each_by_the_owner_limit() -> None:
    rules = ReleaseRules(max_jobs_per_owner=10, owner_limit_factor=0.5)
    groups = [group(range(10), agent=1, priority=9), group(range(10, 20), agent=2, priority=1)]
    taken = released(groups, loads(WIDE, rules))
    assert Counter(release.group for release in taken) == {0: 5, 1: 5}


def test_draining_sites_are_used_only_without_another() -> None:
    uses = {"D": SiteState.DRAIN, "X": SiteState.DOWN}
    assert usable_sites("ADX", uses) == {"A"}
    assert usable_sites("DX", uses) == {"D"}
    assert usable_sites("X", uses) == frozenset()


def test_agents_share_the_slots_of_a_site() -> None:
    rules = ReleaseRules(pending_floor=1)
    assert limits_of(1000, 1, "Processing", rules) == Limits(500, 1000, 450, 900)
    assert limits_of(1000, 4, "Merge", rules) == Limits(125, 250, 62, 125)
    assert limits_of(0, 3, "Merge", rules) == Limits(1, 1, 1, 1)


TYPES = sorted(TYPE_PRIORITIES)


@given(
    st.lists(
        st.tuples(
            st.sampled_from(TYPES),
            st.integers(0, 3),
            st.integers(1, 2),
            st.sets(st.sampled_from("ABC"), min_size=1),
            st.integers(0, 30),
        ),
        max_size=8,
    ),
    st.tuples(*[st.integers(1, 12)] * 4),
    st.integers(0, 2**32),
)
def test_no_limit_is_exceeded_by_more_than_the_overflow(
    drawn: list[tuple[str, int, int, set[str], int]], values: tuple[int, int, int, int], seed: int
) -> None:
    limits, rules = Limits(*values), ReleaseRules()
    held = loads(limits, rules)
    groups = [
        ReleaseGroup(kind, priority, agent, frozenset(sites), iter(range(place * 100, place * 100 + count)))
        for place, (kind, priority, agent, sites, count) in enumerate(drawn)
    ]
    taken = begun(groups, held, seed).take(10**6)
    assert len({release.job for release in taken}) == len(taken)
    for load in held.loads.values():
        most = limits.pending * 1.2 + 1
        assert load.pending < most
        for kind, of_type in load.types.items():
            assert of_type.pending < limits.type_pending * (1.0 if kind == "Merge" else 1.2) + 1
    for place, (kind, priority, agent, sites, count) in enumerate(drawn):
        # A job is left only if each of its sites refuses it.
        if sum(release.group == place for release in taken) < count:
            assert all(held.reached_limit(agent, site, kind, priority) for site in sites)


def test_the_order_of_the_refusals() -> None:
    load = SiteLoad()
    load.add("Processing", 5, pending=5, running=5)
    told = [
        reached_limit(load, limits, "Processing", 5)
        for limits in (Limits(5, 5, 5, 5), Limits(6, 4, 5, 5), Limits(6, 4, 6, 4), Limits(6, 5, 6, 4))
    ]
    assert told == [
        (ReleaseRefusal.PENDING, 5, 5),
        (ReleaseRefusal.TYPE_PENDING, 5, 5),
        (ReleaseRefusal.ALL, 10, 10),
        (ReleaseRefusal.TYPE_ALL, 10, 10),
    ]
    assert str(told[0]) == "the site has enough waiting jobs: 5 of 5"
    assert reached_limit(load, Limits(6, 5, 6, 5), "Processing", 5) is None


def test_the_room_is_the_number_of_jobs_that_a_pass_releases() -> None:
    held = loads(Limits(7, 5, 6, 5), ReleaseRules(max_jobs_per_owner=12))
    held.add(1, "A", "Processing", 5, pending=2, running=1)
    assert held.room(1, "A", "Processing", 5) == 4
    assert len(released([group(range(100), priority=5)], held)) == 4
    assert held.room(1, "A", "Processing", 5) == 0
    assert held.room(1, "B", "Processing", 5) == 2, "the owner may have 9"


@pytest.mark.parametrize(("pending", "most"), [(1, 1), (3, 3), (4, 4), (5, 6), (15, 18), (35, 42), (45, 54)])
def test_the_overflow_is_rounded_down(pending: int, most: int) -> None:
    held = loads(Limits(pending, 1000, 1000, 1000))
    assert len(released([group(range(1000), priority=10)], held)) == pending
    assert len(released([group(range(1000, 2000), priority=20)], held)) == most - pending
