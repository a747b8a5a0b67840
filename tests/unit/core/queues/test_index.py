"""The index against a dictionary that is asked for everything; its draws against docs/reference/rules.md, section 3."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from pilotage.core.ids import JobId, QueueId
from pilotage.core.queues import candidates as candidates_module
from pilotage.core.queues import index as index_module
from pilotage.core.queues import offer_classes as kinds_module
from pilotage.core.queues.draws import FIRST, RULES, Rule
from pilotage.core.queues.fit import Condition, Offer, first_failure, fits
from pilotage.core.queues.identity import QueueIdentity
from pilotage.core.queues.index import QueueIndex
from pilotage.core.queues.indexed_queue import Head, IndexedQueue
from pilotage.core.queues.limits import Limit
from pilotage.core.queues.proposal import Proposal
from pilotage.core.shares.priorities import Priorities
from tests.unit.core.queues.chance import assert_alike, assert_shares
from tests.unit.core.queues.offers import CPU_BUCKETS, MEMORY_BUCKETS, identities, offers

OFFER = Offer("here", "ce1", 300000.0, processors=8)
TOO_SMALL = Offer("here", "ce1", -1.0, processors=0)
"""No queue fits it."""


def holds(_: QueueIdentity) -> bool:
    return True


def never_holds(_: QueueIdentity) -> bool:
    return False


class Shelf:
    """The store: waiting jobs as (queue, UserPriority, id)."""

    def __init__(self) -> None:
        self.waiting: dict[int, tuple[int, int]] = {}

    def heads(self, queue: QueueId, weight: int, after: int, most: int) -> Sequence[Head]:
        of_class = (job for job, place in self.waiting.items() if place == (queue, weight) and job > after)
        return [(job, "as the store tells it") for job in sorted(of_class)[:most]]

    def counts(self, queue: int) -> dict[int, int]:
        return Counter(weight for place, weight in self.waiting.values() if place == queue)


def entry(number: int, identity: QueueIdentity | None = None, priority: float = 1.0) -> IndexedQueue:
    identity = identity or QueueIdentity("alice", "physics", tags=frozenset())
    return IndexedQueue(QueueId(number), identity, (identity.owner, identity.group), priority=priority)


def index_of(shelf: Shelf, rule: Rule = "dirac", *entries: IndexedQueue) -> QueueIndex:
    wanted = {one.id: one.priority for one in entries}
    index = QueueIndex(
        lambda wanted: [shelf.heads(*one) for one in wanted],
        rule=rule,
        cpu_buckets=CPU_BUCKETS,
        memory_buckets=MEMORY_BUCKETS,
        priorities=Priorities({}, frozenset()),
        rng=Random(7),
    )
    for one in entries:
        index.add_queue(one)
        index.reset_queue(one.id, dict(shelf.counts(one.id)))
    for queue, priority in wanted.items():
        index.set_priority(queue, priority)
    return index


# --- against a model

QUEUES = 4


class AgainstADictionary(RuleBasedStateMachine):
    """What waits is in the shelf, as rows would be; the index is only told what the use cases tell it."""

    rule_of_draw: Rule = "dirac"

    @initialize(
        queues=st.lists(identities(), min_size=QUEUES, max_size=QUEUES),
        seed=st.integers(0, 1000),
        prefetch=st.sampled_from([10, 12, 256]),
        forgotten=st.sampled_from([0, 2, 1000]),
    )
    def begin(self, queues: list[QueueIdentity], seed: int, prefetch: int, forgotten: int) -> None:
        self.before = index_module.FIRST_PREFETCH, index_module.LARGEST_PREFETCH
        index_module.FIRST_PREFETCH, index_module.LARGEST_PREFETCH = prefetch, 2 * prefetch
        self.forgotten_before = candidates_module.FORGOTTEN
        candidates_module.FORGOTTEN = forgotten
        self.rng = Random(seed)
        self.shelf = Shelf()
        self.out: dict[int, tuple[int, int]] = {}
        self.last = 0
        self.promised: list[int] = []
        entries = [entry(number, identity) for number, identity in enumerate(queues)]
        self.entries = {one.id: one for one in entries}
        self.index = index_of(self.shelf, self.rule_of_draw, *entries)
        self.limit = Limit("owner", "alice", running=0)

    def teardown(self) -> None:
        if hasattr(self, "before"):
            self.drain()
            index_module.FIRST_PREFETCH, index_module.LARGEST_PREFETCH = self.before
            candidates_module.FORGOTTEN = self.forgotten_before

    @rule(queue=st.integers(0, QUEUES - 1), weight=st.integers(0, 2), count=st.integers(1, 30))
    def add(self, queue: int, weight: int, count: int) -> None:
        first = self.last + 1
        self.last += count
        self.arrive(queue, weight, first, count)

    def arrive(self, queue: int, weight: int, first: int, count: int) -> None:
        self.shelf.waiting.update({first + step: (queue, weight) for step in range(count)})
        self.index.add_jobs(QueueId(queue), weight, JobId(first), count)

    @rule(count=st.integers(1, 5))
    def promise_ids(self, count: int) -> None:
        """A submission is accepted whose jobs are made later: others with higher ids may come first."""
        self.promised += range(self.last + 1, self.last + count + 1)
        self.last += count

    @rule(queue=st.integers(0, QUEUES - 1), weight=st.integers(0, 2))
    def keep_a_promise(self, queue: int, weight: int) -> None:
        if self.promised:
            self.arrive(queue, weight, self.promised.pop(0), 1)

    @rule(which=st.integers(0, 10**6))
    def give_back(self, which: int) -> None:
        if self.out:
            job = sorted(self.out)[which % len(self.out)]
            queue, weight = self.shelf.waiting[job] = self.out.pop(job)
            self.index.return_job(QueueId(queue), weight, (job, "returned"))

    @rule(which=st.integers(0, 10**6))
    def kill(self, which: int) -> None:
        if self.shelf.waiting:
            job = sorted(self.shelf.waiting)[which % len(self.shelf.waiting)]
            queue, weight = self.shelf.waiting.pop(job)
            self.index.remove_job(QueueId(queue), weight, JobId(job))

    @rule(queue=st.integers(0, QUEUES - 1))
    def reset(self, queue: int) -> None:
        self.index.reset_queue(QueueId(queue), dict(self.shelf.counts(queue)))

    @rule(queue=st.integers(0, QUEUES - 1), priority=st.sampled_from([0.0, 0.5, 1.0, 1000.0]))
    def change_priority(self, queue: int, priority: float) -> None:
        self.index.set_priority(QueueId(queue), priority)

    @rule(queue=st.integers(0, QUEUES - 1), times=st.integers(1, 3 * QUEUES))
    def forget_if_empty_and_meet_again(self, queue: int, times: int) -> None:
        for _ in range(0 if self.shelf.counts(queue) else times):
            self.index.remove_queue(QueueId(queue))
            self.index.add_queue(entry(queue, self.entries[QueueId(queue)].identity))

    @rule(offer=offers(), hold=st.booleans(), limited=st.booleans())
    def propose(self, offer: Offer, hold: bool, limited: bool) -> None:
        closed = [self.limit] if limited else []
        expected = self.candidates(offer, hold, closed)
        said = {one.id for one in self.index.candidates(offer, lambda _: hold, closed)}
        assert said == expected
        found = self.index.propose(self.index.offer_class(offer, closed), lambda _: hold, self.rng)
        if found is None:
            assert not expected
            self.explained(offer, hold, closed)
            return
        assert found.queue in expected
        if self.rule_of_draw == "dirac":
            highest = max(self.entries[QueueId(queue)].identity.cpu_time for queue in expected)
            assert self.entries[found.queue].identity.cpu_time == highest
        else:
            owner = self.owner_of(found.queue)
            own = [queue for queue in expected if self.owner_of(queue) == owner]
            assert found.user_priority == max(max(self.shelf.counts(queue)) for queue in own)
        self.check(found)

    def owner_of(self, queue: int) -> tuple[str, str]:
        identity = self.entries[QueueId(queue)].identity
        return identity.owner, identity.group

    def check(self, found: Proposal) -> None:
        place = (found.queue, found.user_priority)
        assert self.shelf.waiting[found.job] == place, "it does not wait there"
        counts = self.shelf.counts(found.queue)
        assert found.user_priority > 0 or set(counts) == {0}
        same = sorted(job for job, where in self.shelf.waiting.items() if where == place)
        assert found.job in same[:FIRST]
        self.out[found.job] = self.shelf.waiting.pop(found.job)

    def candidates(self, offer: Offer, hold: bool, closed: list[Limit]) -> set[int]:
        """Asked of the predicate, queue by queue; without background queues (docs/reference/rules.md, section 3)."""
        fitting = {
            number: set(self.shelf.counts(number))
            for number, one in self.entries.items()
            if self.shelf.counts(number)
            and fits(one.identity, offer, lambda _: hold)
            and not any(limit.applies_to(one.identity) for limit in closed)
        }
        ahead = {self.entries[number].entity for number, weights in fitting.items() if weights != {0}}
        return {
            number
            for number, weights in fitting.items()
            if weights != {0} or self.entries[number].entity not in ahead
        }

    def explained(self, offer: Offer, hold: bool, closed: list[Limit]) -> None:
        said = self.index.explain(offer, lambda _: hold, closed).fallen
        expected = Counter(
            first_failure(one.identity, offer, lambda _: hold) or Condition.LIMIT
            for number, one in self.entries.items()
            if self.shelf.counts(number)
        )
        assert said == expected

    @invariant()
    def counts_are_those_of_the_shelf(self) -> None:
        if hasattr(self, "index"):
            for number in self.entries:
                found = self.index.entries[number]
                assert {w: part.count for w, part in found.levels.items() if part.count} == self.shelf.counts(
                    number
                )
                assert found.waiting == sum(self.shelf.counts(number).values())

    @invariant()
    def every_waiting_queue_is_explained(self) -> None:
        if hasattr(self, "index"):
            self.explained(TOO_SMALL, True, [])

    def drain(self) -> None:
        """Whatever happened, every waiting job is found in the end."""
        everything = Offer("here", "ce1", 10**9, processors=10**3)
        for number, one in self.entries.items():
            self.index.remove_queue(number)
            self.index.add_queue(entry(number, QueueIdentity(one.identity.owner, "g")))
            self.index.reset_queue(number, dict(self.shelf.counts(number)))
        while self.shelf.waiting:
            found = self.index.propose(self.index.offer_class(everything), holds, self.rng)
            assert found is not None
            self.check(found)
        assert self.index.propose(self.index.offer_class(everything), holds, self.rng) is None


class AgainstADictionaryProportionally(AgainstADictionary):
    rule_of_draw: Rule = "proportional"


TestDocument = AgainstADictionary.TestCase
TestProportional = AgainstADictionaryProportionally.TestCase
TestDocument.settings = TestProportional.settings = settings(max_examples=settings().max_examples // 3)


# --- one by one


def filled(shelf: Shelf, jobs: dict[int, list[int]]) -> None:
    """`jobs`: queue → the UserPriority of each of its jobs; ids rise."""
    for queue, weights in jobs.items():
        for weight in weights:
            shelf.waiting[len(shelf.waiting) + 1] = (queue, weight)


def test_jobs_with_ids_below_those_that_were_read_are_found() -> None:
    """Two submissions made side by side, a chunk of the one after all of the other."""
    shelf = Shelf()
    index = index_of(shelf, "dirac", entry(1))
    for job in range(501, 511):
        shelf.waiting[job] = (1, 1)
    index.add_jobs(QueueId(1), 1, JobId(501), 10)
    rng = Random(1)
    first = index.propose(index.offer_class(OFFER), holds, rng)
    assert first is not None
    del shelf.waiting[first.job]
    for job in range(1, 31):
        shelf.waiting[job] = (1, 1)
    index.add_jobs(QueueId(1), 1, JobId(1), 30)
    found = []
    while proposal := index.propose(index.offer_class(OFFER), holds, rng):
        assert proposal.job in sorted(shelf.waiting)[:FIRST]
        del shelf.waiting[proposal.job]
        found.append(proposal.job)
    assert sorted(found) == sorted({*range(1, 31), *range(501, 511)} - {first.job})


def test_the_highest_cpu_bucket_goes_first_whatever_the_priorities() -> None:
    shelf = Shelf()
    filled(shelf, {1: [10], 2: [1], 3: [10]})
    entries = [
        entry(1, QueueIdentity("a", "g", cpu_time=500), 1e9),
        entry(2, QueueIdentity("b", "g", cpu_time=50000), 1e-9),
        entry(3, QueueIdentity("c", "g", cpu_time=5000), 1e9),
    ]
    index = index_of(shelf, "dirac", *entries)
    order = [index.propose(index.offer_class(OFFER), holds, Random(1)).queue for _ in range(3)]
    assert order == [2, 3, 1]


def test_each_of_the_ten_lowest_ids_is_equally_likely_and_no_other() -> None:
    shelf = Shelf()
    filled(shelf, {1: [1] * 25})
    counts: Counter[int] = Counter()
    index, rng = index_of(shelf, "dirac", entry(1)), Random(3)
    for _ in range(4000):
        found = index.propose(index.offer_class(OFFER), holds, rng)
        assert found is not None
        counts[found.job] += 1
        index.return_job(QueueId(1), 1, found.head)
    assert_shares(counts, dict.fromkeys(range(1, 11), 0.1))


def naive(entries: list[IndexedQueue], shelf: Shelf, rule: Rule, rng: Random) -> tuple[int, int, int]:
    """As in "DIRAC Task Queue Matching", over everything: ORDER BY rand()/priority, for queues, then for jobs."""

    def smallest(weighted: dict[int, float]) -> int:
        values = {}
        for key, weight in weighted.items():
            u = 1 - rng.random()
            drawn = u if rule == "dirac" else -math.log(u)
            values[key] = drawn / weight if weight else math.inf
        best = min(values.values())
        return rng.choice([key for key, value in values.items() if value == best])

    highest = max(one.identity.cpu_time for one in entries)
    kept = [one for one in entries if rule == "proportional" or one.identity.cpu_time == highest]
    queue = smallest({one.id: one.priority for one in kept})
    if rule == "proportional":
        # The draw decides whose turn it is, the owner which of the own jobs comes first.
        owner = next(one.entity for one in kept if one.id == queue)
        own = {one.id: one.priority for one in kept if one.entity == owner}
        first = max(weight for place, weight in shelf.waiting.values() if place in own)
        at_first = {
            place: own[QueueId(place)]
            for place, weight in shelf.waiting.values()
            if place in own and weight == first
        }
        queue = queue if queue in at_first else QueueId(smallest(at_first))
    jobs = {job: float(weight) for job, (place, weight) in shelf.waiting.items() if place == queue}
    weight = max(jobs.values()) if rule == "proportional" else jobs[smallest(jobs)]
    return queue, int(weight), rng.choice(sorted(job for job in jobs if jobs[job] == weight)[:FIRST])


def test_no_job_starts_before_one_of_a_higher_priority_of_its_owner_that_fits_the_same_node() -> None:
    """Also if they wait in different queues, one of which has Requirements. Other owners keep their part."""
    shelf = Shelf()
    filled(shelf, {1: [1] * 40 + [10] * 3, 2: [10] * 5, 3: [10] * 2, 4: [10] * 2, 5: [1] * 40})
    entries = [
        entry(1, priority=70.0),
        entry(2, QueueIdentity("alice", "physics", cpu_time=5000), priority=50.0),
        entry(3, QueueIdentity("alice", "physics", requirements="x"), priority=20.0),
        entry(4, QueueIdentity("alice", "physics", processors=64), priority=20.0),
        entry(5, QueueIdentity("bob", "physics"), priority=160.0),
    ]
    index, rng = index_of(shelf, "proportional", *entries), Random(5)
    given: dict[str, list[int]] = {"alice": [], "bob": []}
    for _ in range(60):
        found = index.propose(index.offer_class(OFFER), holds, rng)
        assert found is not None
        given[found.entry.identity.owner].append(found.user_priority)
    assert given["alice"][:10] == [10] * 10
    assert set(given["alice"][10:]) == {1}, "queue 4 does not fit"
    assert len(given["bob"]) > 15


@pytest.mark.parametrize("rule", RULES)
def test_fast_path_slow_path_and_document_draw_alike(rule: Rule) -> None:
    shelf = Shelf()
    filled(shelf, {1: [1, 1, 3] * 6, 2: [10, 0, 1], 3: [2] * 12, 4: [1, 5]})
    short = QueueIdentity("alice", "physics", cpu_time=5000)
    long = QueueIdentity("bob", "physics", cpu_time=50000)
    entries = [entry(1, long, 3.0), entry(2, long, 1.0), entry(3, long, 1.0), entry(4, short, 5.0)]
    draws, index = 6_000, index_of(shelf, rule, *entries)
    concerns_nobody = [Limit("owner", "nobody", running=0)]
    sides: dict[str, Counter[tuple[int, int, int]]] = {}
    for side, closed in (("fast", []), ("slow", concerns_nobody)):
        rng = Random(side)
        counts: Counter[Any] = Counter()
        for _ in range(draws):
            found = index.propose(index.offer_class(OFFER, closed), holds, rng)
            assert found is not None
            counts[found.queue, found.user_priority, found.job] += 1
            index.return_job(found.queue, found.user_priority, found.head)
        sides[side] = counts
    rng = Random("naive")
    sides["naive"] = Counter(naive(entries, shelf, rule, rng) for _ in range(draws))
    assert {key[0] for key in sides["fast"]} == ({1, 2, 3} if rule == "dirac" else {2, 4})
    assert_alike(sides["fast"], sides["naive"])
    assert_alike(sides["slow"], sides["naive"])


def test_a_queue_of_background_jobs_waits_for_the_others_of_its_entity() -> None:
    shelf = Shelf()
    filled(shelf, {1: [0, 0], 2: [1], 3: [0]})
    alice, bob = QueueIdentity("alice", "physics"), QueueIdentity("bob", "physics", cpu_time=5000)
    long = replace(alice, cpu_time=50000)
    index = index_of(shelf, "dirac", entry(1, long), entry(2, alice), entry(3, bob))
    # Left out before the order by CPU time; bob is another entity, and has nothing else.
    assert {one.id for one in index.candidates(OFFER, holds, [])} == {2, 3}
    assert [index.propose(index.offer_class(OFFER), holds, Random(1)).queue for _ in range(3)] == [3, 2, 1]
    # The other one fits no longer, or not this offer: drawn again.
    index.return_job(QueueId(2), 1, (3,))
    closed = [Limit("job_type", "User", running=0)]
    assert index.candidates(OFFER, holds, closed) == []
    index.set_priority(QueueId(2), 5.0)
    assert {one.id for one in index.candidates(OFFER, holds, [])} == {2}
    index.remove_job(QueueId(2), 1, JobId(3))
    assert {one.id for one in index.candidates(OFFER, holds, [])} == {1}


def test_background_is_by_entity_so_sharing_groups_wait_for_each_other() -> None:
    shelf = Shelf()
    filled(shelf, {1: [0], 2: [1]})
    entries = [entry(1, QueueIdentity("alice", "g")), entry(2, QueueIdentity("bob", "g"))]
    for one in entries:
        one.entity = ("", "g")
    assert [one.id for one in index_of(shelf, "dirac", *entries).candidates(OFFER, holds, [])] == [2]


def test_a_queue_whose_requirements_fail_does_not_keep_background_jobs_waiting() -> None:
    shelf = Shelf()
    filled(shelf, {1: [0], 2: [1]})
    picky = QueueIdentity("alice", "physics", requirements="x")
    index = index_of(shelf, "dirac", entry(1), entry(2, picky))
    assert [one.id for one in index.candidates(OFFER, never_holds, [])] == [1]
    assert [one.id for one in index.candidates(OFFER, holds, [])] == [2]
    assert index.explain(OFFER, never_holds, []).fallen == {
        Condition.REQUIREMENTS: 1,
        Condition.BACKGROUND: 1,
    }


def test_a_closed_limit_leaves_out_exactly_the_queues_it_concerns() -> None:
    shelf = Shelf()
    filled(shelf, {1: [1], 2: [1], 3: [1]})
    merge = QueueIdentity("alice", "physics", job_type="Merge")
    index = index_of(shelf, "dirac", entry(1), entry(2, merge), entry(3, replace(merge, owner="bob")))
    closed = [Limit("job_type", "Merge", running=0)]
    assert {one.id for one in index.candidates(OFFER, holds, closed)} == {1}
    assert index.propose(index.offer_class(OFFER, closed), holds, Random(1)).queue == 1
    assert index.propose(index.offer_class(OFFER, closed), holds, Random(1)) is None
    assert index.explain(OFFER, holds, closed).fallen == {Condition.LIMIT: 2}
    assert {one.id for one in index.candidates(OFFER, holds, [Limit("owner", "bob", running=0)])} == {2}


def test_a_queue_that_the_store_finds_empty_is_set_right_and_another_drawn() -> None:
    shelf = Shelf()
    filled(shelf, {1: [1], 2: [1]})
    entries = [entry(1, QueueIdentity("a", "g", cpu_time=50000)), entry(2)]
    index = index_of(shelf, "dirac", *entries)
    index.reset_queue(QueueId(1), {1: 5})
    shelf.waiting.pop(1)
    assert index.propose(index.offer_class(OFFER), holds, Random(1)).queue == 2
    assert index.entries[QueueId(1)].waiting == 0


@given(
    st.lists(identities(), min_size=1, max_size=12),
    offers(),
    st.floats(0, 400000),
    st.one_of(st.just(0), st.integers(1, 20000)),
    st.booleans(),
)
def test_offers_of_one_kind_are_fitted_by_the_same_queues(
    queues: list[QueueIdentity], offer: Offer, cpu: float, memory: int, hold: bool
) -> None:
    shelf = Shelf()
    index = index_of(shelf, "dirac", *[entry(number, queue) for number, queue in enumerate(queues)])
    # Far apart, and one step apart.
    for other in (
        replace(offer, cpu_time=cpu, memory=memory),
        replace(offer, cpu_time=math.nextafter(offer.cpu_time, 0)),
        replace(offer, memory=max(0, offer.memory - 1)),
        replace(offer, processors=max(0, offer.processors - 1)),
        replace(offer, processors=offer.processors + 100),
    ):
        if index.class_key(offer) == index.class_key(other):
            for queue in queues:
                failures = [first_failure(queue, one, lambda _: hold) for one in (offer, other)]
                assert failures[0] == failures[1], (queue, offer, other)
    for queue in queues:
        assert fits(queue, offer, holds) == fits(queue, index.class_key(offer), holds)


def test_a_queue_of_other_buckets_that_comes_later_is_told_apart() -> None:
    """Its job was submitted under an earlier policy, or asks for more memory than the last bucket."""
    shelf = Shelf()
    index = index_of(shelf, "dirac", entry(1))
    small, large = replace(OFFER, cpu_time=600, memory=7000), replace(OFFER, cpu_time=800, memory=13500)
    for offer in (small, large):
        assert index.candidates(offer, holds, []) == []
    filled(shelf, {2: [1], 3: [1]})
    index.add_queue(entry(2, QueueIdentity("a", "g", cpu_time=700)))
    index.add_queue(entry(3, QueueIdentity("a", "g", memory=13000)))
    for queue in (2, 3):
        index.reset_queue(QueueId(queue), {1: 1})
    assert index.candidates(small, holds, []) == []
    assert {one.id for one in index.candidates(large, holds, [])} == {2, 3}


@pytest.mark.parametrize(("owner", "bound"), [(None, "MAX_CLASSES"), ("alice", "MAX_BOUND_CLASSES")])
def test_kinds_that_are_forgotten_and_met_again_find_the_same(
    owner: str | None, bound: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kinds_module, bound, 2)
    shelf = Shelf()
    filled(shelf, {1: [1] * 20})
    index = index_of(shelf, "dirac", entry(1))
    offers_ = [replace(OFFER, ce=f"ce{n}", only_owner=owner) for n in (1, 2, 3, 4)]
    for offer in offers_ * 3:
        assert index.propose(index.offer_class(offer), holds, Random(1)) is not None
    assert len(index._offer_classes) == 2
    # The others have room of their own.
    other = replace(OFFER, only_owner="alice" if owner is None else None)
    assert index.propose(index.offer_class(other), holds, Random(1)) is not None
    assert len(index._offer_classes) == 3


def test_a_queue_that_got_another_slot_is_counted_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Slots are numbered again when many queues are gone."""
    monkeypatch.setattr(candidates_module, "FORGOTTEN", 0)
    shelf = Shelf()
    index = index_of(shelf, "dirac", *map(entry, range(10)))
    shelf.waiting[1] = (9, 1)
    index.add_jobs(QueueId(9), 1, JobId(1), 1)
    for number in range(9):
        index.remove_queue(QueueId(number))
    index.add_queue(entry(10))
    assert sum(index.explain(TOO_SMALL, holds, []).fallen.values()) == 1


def test_a_queue_whose_jobs_other_servers_have_taken_takes_part_in_no_draw() -> None:
    shelf = Shelf()
    shelf.waiting = {1: (1, 1), 2: (1, 2)}
    index = index_of(shelf, "dirac", entry(1))
    offered = index.offer_class(OFFER)
    assert index.propose(offered, holds, Random(1)) is not None
    # The level of the other job is read ahead, and found empty.
    shelf.waiting.clear()
    index.prefetch_heads()
    assert index.entries[QueueId(1)].waiting == 0
    assert index.propose(offered, holds, Random(1)) is None
