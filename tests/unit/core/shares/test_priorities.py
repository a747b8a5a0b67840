"""Priorities of task queues against docs/reference/rules.md, section 4, computed plainly from scratch here."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from random import Random
from typing import Any

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from pilotage.core.ids import JobId, QueueId
from pilotage.core.queues.identity import QueueIdentity
from pilotage.core.queues.index import QueueIndex
from pilotage.core.queues.indexed_queue import IndexedQueue
from pilotage.core.shares.priorities import Priorities

SHARES = {"physics": 1000.0, "production": 3000.0, "nothing": 0.0}
SHARING = frozenset({"production"})


@dataclass(frozen=True)
class Waiting:
    """What waits in one queue; `weight` is the sum of UserPriority."""

    owner: str
    group: str
    weight: int
    jobs: int


Factors = Mapping[str, float]
OwnerFactors = Mapping[tuple[str, str], float]
NONE: dict[Any, float] = {}


def entity_of(waiting: Waiting) -> tuple[str, str]:
    return ("" if waiting.group in SHARING else waiting.owner, waiting.group)


def entitled(
    queues: Mapping[str, Waiting], groups: Factors, owners: OwnerFactors
) -> dict[tuple[str, str], float]:
    """E × correction, by entity."""
    entities = {entity_of(one) for one in queues.values()}
    found = {}
    for owner, group in entities:
        share = SHARES.get(group, 0.0) * groups.get(group, 1.0)
        if owner:
            together = sum(owners.get(one, 1.0) for one in entities if one[1] == group)
            share *= owners.get((owner, group), 1.0) / together
        found[owner, group] = share
    return found


def from_scratch(
    queues: Mapping[str, Waiting], groups: Factors = NONE, owners: OwnerFactors = NONE
) -> dict[str, float]:
    shares = entitled(queues, groups, owners)
    found = {}
    for name, one in queues.items():
        theirs = [other for other in queues.values() if entity_of(other) == entity_of(one)]
        weight, jobs = sum(other.weight for other in theirs), sum(other.jobs for other in theirs)
        part = one.weight / weight if weight else one.jobs / jobs
        found[name] = shares[entity_of(one)] * part
    return found


def of(queues: Mapping[str, Waiting], shares: Mapping[str, float] = SHARES) -> Priorities[str]:
    priorities: Priorities[str] = Priorities(shares, SHARING)
    for name, one in queues.items():
        priorities.set(name, one.owner, one.group, one.weight, one.jobs)
    return priorities


# --- the worked examples


def test_a_shared_group_is_divided_by_the_sums_of_its_queues() -> None:
    queues = {"a": Waiting("ann", "home", 3, 3), "b": Waiting("bob", "home", 1, 1)}
    priorities: Priorities[str] = Priorities({"home": 1000}, frozenset({"home"}))
    for name, one in queues.items():
        priorities.set(name, one.owner, one.group, one.weight, one.jobs)
    assert dict(priorities.recompute()) == {"a": 750, "b": 250}


def test_owners_share_a_group_equally_whatever_they_have_waiting() -> None:
    queues = {
        "a": Waiting("a", "physics", 1, 1),
        "b1": Waiting("b", "physics", 2, 2),
        "b2": Waiting("b", "physics", 6, 6),
    }
    assert dict(of(queues).recompute()) == {"a": 500, "b1": 125, "b2": 375}


def test_where_sums_are_equal_each_queue_gets_one_nth_as_the_document_says() -> None:
    shared = {f"q{n}": Waiting(f"o{n}", "production", 4, 2) for n in range(8)}
    assert dict(of(shared).recompute()) == dict.fromkeys(shared, 3000 / 8)
    divided = {f"q{owner}{n}": Waiting(f"o{owner}", "physics", 4, 2) for owner in range(2) for n in range(4)}
    assert dict(of(divided).recompute()) == dict.fromkeys(divided, 1000 / (2 * 4))


def test_many_jobs_weigh_within_an_owner_and_never_between_owners() -> None:
    queues = {
        "a": Waiting("a", "physics", 10**9, 10**9),
        "b1": Waiting("b", "physics", 1, 1),
        "b2": Waiting("b", "physics", 3, 3),
    }
    assert dict(of(queues).recompute()) == {"a": 500, "b1": 125, "b2": 375}


def test_an_entity_with_user_priority_0_only_is_divided_by_jobs() -> None:
    queues = {"a": Waiting("a", "physics", 0, 3), "b": Waiting("a", "physics", 0, 1)}
    priorities = of(queues)
    assert dict(priorities.recompute()) == {"a": 750, "b": 250}
    priorities.set("b", "a", "physics", 1, 2)
    assert dict(priorities.recompute()) == {"a": 0, "b": 1000}


def test_a_group_that_the_policy_has_forgotten_has_no_share() -> None:
    queues = {
        "a": Waiting("a", "gone", 1, 1),
        "b": Waiting("b", "gone", 2, 1),
        "c": Waiting("c", "physics", 1, 1),
    }
    priorities = of(queues)
    assert dict(priorities.recompute()) == {"a": 0, "b": 0, "c": 1000}
    assert priorities.of("a", "a", "gone") == 0
    assert [row.share for row in priorities.table()] == [0, 0, 1000]


def test_corrections_of_a_group_change_it_alone() -> None:
    queues = {"a": Waiting("a", "physics", 1, 1), "b": Waiting("x", "production", 1, 1)}
    priorities = of(queues)
    priorities.correct({"physics": 2.6}, {})
    assert dict(priorities.recompute()) == {"a": 2600, "b": 3000}
    priorities.correct({}, {})
    assert dict(priorities.recompute()) == {"a": 1000, "b": 3000}


def test_corrections_of_owners_are_scaled_to_their_groups_corrected_share() -> None:
    queues = {owner: Waiting(owner, "physics", 1, 1) for owner in "abc"}
    priorities = of(queues)
    priorities.correct({"physics": 0.5}, {("a", "physics"): 3, ("b", "physics"): 0.5, ("z", "physics"): 100})
    assert dict(priorities.recompute()) == {
        "a": 500 * 3 / 4.5,
        "b": 500 * 0.5 / 4.5,
        "c": 500 * 1 / 4.5,
    }
    rows = {row.owner: row for row in priorities.table()}
    assert math.isclose(rows["a"].correction, 2)  # 3 of 4.5, where an equal part were 1 of 3
    assert math.isclose(sum(row.correction for row in rows.values()), 3)
    assert math.isclose(sum(row.share for row in rows.values()), 500)


def test_owner_factors_of_a_shared_group_mean_nothing() -> None:
    priorities = of({"a": Waiting("x", "production", 1, 1)})
    priorities.correct({}, {("x", "production"): 5, ("", "production"): 5})
    assert dict(priorities.recompute()) == {"a": 3000}


def test_a_new_queues_priority_equals_the_settled_one() -> None:
    """Queues of one priority are one class of the draw: a digit's difference would make it two."""
    rng = Random(1)
    for _ in range(300):
        queues = {
            str(number): Waiting(rng.choice("abc"), "physics", rng.randrange(1, 50), 50)
            for number in range(rng.randrange(1, 9))
        }
        priorities = of(queues)
        priorities.correct({"physics": rng.uniform(0.2, 5)}, {})
        settled = dict(priorities.recompute())
        assert settled == {name: priorities.of(name, one.owner, one.group) for name, one in queues.items()}


# --- by change


def test_settling_yields_only_queues_of_entities_that_changed() -> None:
    queues = {
        "a1": Waiting("a", "physics", 1, 1),
        "a2": Waiting("a", "physics", 1, 1),
        "b": Waiting("b", "physics", 1, 1),
        "p": Waiting("x", "production", 1, 1),
    }
    priorities = of(queues)
    assert priorities.has_changes
    assert {queue for queue, _ in priorities.recompute()} == {"a1", "a2", "b", "p"}
    assert not priorities.has_changes
    assert list(priorities.recompute()) == []
    priorities.set("a1", "a", "physics", 2, 2)
    assert {queue for queue, _ in priorities.recompute()} == {"a1", "a2"}
    priorities.set("q", "y", "production", 2, 2)
    assert {queue for queue, _ in priorities.recompute()} == {"p", "q"}
    priorities.set("c", "c", "physics", 1, 1)
    assert {queue for queue, _ in priorities.recompute()} == {"a1", "a2", "b", "c"}
    priorities.set("c", "c", "physics", 0, 0)
    assert {queue for queue, _ in priorities.recompute()} == {"a1", "a2", "b"}


def test_a_queue_that_is_not_known_may_go() -> None:
    priorities = of({"a": Waiting("a", "physics", 1, 1)})
    list(priorities.recompute())
    priorities.set("b", "a", "physics", 0, 0)
    priorities.set("c", "c", "physics", 0, 0)
    assert dict(priorities.recompute()) == {"a": 1000}
    assert priorities.waiting_owners() == {("a", "physics")}


class Counted(float):
    """A number that counts how often it is added or divided."""

    uses = 0

    def _count(self) -> float:
        Counted.uses += 1
        return float(self)

    def __add__(self, other: float) -> float:
        return self._count() + other

    def __radd__(self, other: float) -> float:
        return other + self._count()

    def __rsub__(self, other: float) -> float:
        return other - self._count()

    def __rmul__(self, other: float) -> float:
        return other * self._count()

    def __truediv__(self, other: float) -> float:
        return self._count() / other


@pytest.mark.parametrize("count", [500, 2000])
def test_a_burst_of_new_queues_recomputes_nothing(count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the number of times that an owner's factor is looked at: a constant number for each newcomer."""
    priorities: Priorities[QueueId] = Priorities({"physics": 1000.0}, frozenset())
    priorities.correct({}, {(f"o{number}", "physics"): Counted(1) for number in range(count)})
    index = QueueIndex(
        lambda wanted: [()] * len(wanted),
        rule="dirac",
        cpu_buckets=(500,),
        memory_buckets=(500,),
        priorities=priorities,
        rng=Random(1),
    )
    monkeypatch.setattr(Priorities, "recompute", lambda _: pytest.fail("recomputed on the hot path"))
    monkeypatch.setattr(Counted, "uses", 0)
    for number in range(count):
        identity = QueueIdentity(f"o{number}", "physics", tags=frozenset())
        index.add_queue(IndexedQueue(QueueId(number), identity, (identity.owner, identity.group)))
        index.add_jobs(QueueId(number), 1, JobId(number + 1), 1)
    assert count <= Counted.uses <= 3 * count
    assert math.isclose(index.entries[QueueId(count - 1)].priority, 1000 / count)
    monkeypatch.undo()
    assert len(list(index.apply_priorities())) == count
    assert {round(entry.priority, 9) for entry in index.entries.values()} == {round(1000 / count, 9)}


@pytest.mark.parametrize("settles", [0, 100])
def test_a_hundred_thousand_comings_and_goings_leave_no_rounding_behind(settles: int) -> None:
    rng, queues = Random(3), dict[str, Waiting]()
    priorities: Priorities[str] = Priorities(SHARES, SHARING)
    factors = {(f"o{n}", "physics"): rng.choice([0.2, 1 / 3, 0.467, 1.8, 2.6, 5]) for n in range(40)}
    priorities.correct({"physics": 1 / 3}, factors)
    for step in range(100_000):
        number = rng.randrange(40)
        name = f"q{number}"
        if name in queues:
            gone = queues.pop(name)
            priorities.set(name, gone.owner, gone.group, 0, 0)
        else:
            queues[name] = Waiting(f"o{number}", "physics", rng.randrange(9), 9)
            priorities.set(name, f"o{number}", "physics", queues[name].weight, 9)
        if settles and step % (100_000 // settles) == 0:
            list(priorities.recompute())
    expected = from_scratch(queues, {"physics": 1 / 3}, factors)
    for name, one in queues.items():  # before anything is settled, a newcomer is told nearly the same
        assert math.isclose(priorities.of(name, one.owner, one.group), expected[name], rel_tol=1e-9)
    found = dict(priorities.recompute())
    for name, one in queues.items():
        found[name] = priorities.of(name, one.owner, one.group)
    assert found.keys() == expected.keys()
    assert all(math.isclose(found[name], expected[name], rel_tol=1e-14) for name in expected)


def test_everybody_may_go_and_come_back() -> None:
    queues = {"a": Waiting("a", "physics", 1, 1), "b": Waiting("b", "physics", 1, 1)}
    priorities = of(queues)
    for name, one in queues.items():
        priorities.set(name, one.owner, one.group, 0, 0)
    assert list(priorities.recompute()) == []
    assert priorities.table() == []
    assert not priorities.waiting_owners()
    priorities.set("a", "a", "physics", 0, 2)
    assert dict(priorities.recompute()) == {"a": 1000}


# --- any order of changes

OWNERS = ("ann", "bob", "cleo")
GROUPS = (*SHARES, "gone")
PLACES = [
    (f"{owner}/{group}/{number}", owner, group) for owner in OWNERS for group in GROUPS for number in range(2)
]
factors = st.sampled_from([0.2, 1 / 3, 0.467, 1.0, 1.8, 2.6, 5.0])


class AgainstScratch(RuleBasedStateMachine):
    """Someone who keeps priorities as the index does: told of newcomers by `of`, of all else by `settle`."""

    @initialize()
    def begin(self) -> None:
        self.priorities: Priorities[str] = Priorities(SHARES, SHARING)
        self.queues: dict[str, Waiting] = {}
        self.held: dict[str, float] = {}
        self.groups: dict[str, float] = {}
        self.owners: dict[tuple[str, str], float] = {}
        self.touched: set[tuple[str, str]] = set()
        self.pending: Iterable[tuple[str, float]] | None = None

    def present(self) -> Counter[tuple[str, str]]:
        return Counter(entity_of(one) for one in self.queues.values())

    @rule(place=st.sampled_from(PLACES), jobs=st.integers(0, 4), each=st.integers(0, 10))
    def change(self, place: tuple[str, str, str], jobs: int, each: int) -> None:
        name, owner, group = place
        before = self.present()
        new = Waiting(owner, group, each * jobs, jobs)
        self.queues.pop(name, None)
        if jobs:
            self.queues[name] = new
        self.priorities.set(name, owner, group, new.weight, jobs)
        if not jobs:
            self.held.pop(name, None)
        elif name not in self.held:
            self.held[name] = self.priorities.of(name, owner, group)
            expected = from_scratch(self.queues, self.groups, self.owners)[name]
            assert math.isclose(self.held[name], expected, rel_tol=1e-12)
        self.touched.add(entity_of(new))
        if group not in SHARING and before.keys() != self.present().keys():
            self.touched |= {entity for entity in self.present() if entity[1] == group}

    @rule(place=st.sampled_from(PLACES), jobs=st.integers(1, 4), each=st.integers(0, 10))
    def come(self, place: tuple[str, str, str], jobs: int, each: int) -> None:
        """More comings than goings, so that there is something to divide."""
        self.change(place, jobs, each)

    @rule(
        groups=st.dictionaries(st.sampled_from(GROUPS), factors),
        owners=st.dictionaries(st.tuples(st.sampled_from(OWNERS), st.sampled_from(GROUPS)), factors),
    )
    def correct(self, groups: dict[str, float], owners: dict[tuple[str, str], float]) -> None:
        self.groups, self.owners = groups, owners
        self.priorities.correct(groups, owners)
        self.touched |= self.present().keys()

    @rule()
    def settle(self) -> None:
        news = list(self.priorities.recompute())
        assert len(dict(news)) == len(news), "one queue told twice"
        assert {entity_of(self.queues[queue]) for queue, _ in news} <= self.touched
        self.held.update(news)
        self.touched = set()
        self.agree()

    @rule(place=st.sampled_from(PLACES), jobs=st.integers(0, 4), after=st.integers(0, 4))
    def change_while_settling(self, place: tuple[str, str, str], jobs: int, after: int) -> None:
        """`settle` is paused between queues, and what comes meanwhile is for the next one."""
        touched, self.touched = self.touched, set()
        told = set()
        for number, (queue, priority) in enumerate(self.priorities.recompute()):
            if number == after:
                self.change(place, jobs, 1)
            told.add(queue)
            if queue in self.held:
                self.held[queue] = priority
        assert all(
            entity_of(self.queues[queue]) in touched | self.touched for queue in told & self.queues.keys()
        )
        self.settle()

    def agree(self) -> None:
        expected = from_scratch(self.queues, self.groups, self.owners)
        assert self.held.keys() == expected.keys()
        for name, priority in expected.items():
            assert math.isclose(self.held[name], priority, rel_tol=1e-12), name
        for entity, share in entitled(self.queues, self.groups, self.owners).items():
            whole = sum(self.held[name] for name, one in self.queues.items() if entity_of(one) == entity)
            assert math.isclose(whole, share, rel_tol=1e-12), entity
        for group in GROUPS:
            together = sum(self.held[name] for name, one in self.queues.items() if one.group == group)
            share = SHARES.get(group, 0.0) * self.groups.get(group, 1.0)
            waits = any(one.group == group for one in self.queues.values())
            assert math.isclose(together, share if waits else 0.0, rel_tol=1e-12), group

    @invariant()
    def the_table_tells_the_same(self) -> None:
        if not hasattr(self, "priorities"):
            return
        rows = {(row.owner, row.group): row for row in self.priorities.table()}
        shares = entitled(self.queues, self.groups, self.owners)
        assert rows.keys() == shares.keys() == self.priorities.waiting_owners()
        for entity, row in rows.items():
            theirs = [one for one in self.queues.values() if entity_of(one) == entity]
            assert (row.queues, row.waiting) == (len(theirs), sum(one.jobs for one in theirs))
            assert math.isclose(row.share, shares[entity], rel_tol=1e-9)

    def teardown(self) -> None:
        if hasattr(self, "priorities"):
            self.settle()


TestAgainstScratch = AgainstScratch.TestCase
