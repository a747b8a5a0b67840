"""The draws of a pool in motion against the plain rule: a number for each candidate every time, the smallest wins.

At each draw the plain rule is asked about the same candidates as the index. So both samples are of one distribution,
though it changes from draw to draw, and their counts must be alike whatever is kept and made ahead.
"""

from __future__ import annotations

from bisect import bisect_right, insort
from collections import Counter
from collections.abc import Hashable, Sequence
from random import Random

import numpy as np
import pytest

from pilotage.core.ids import JobId, QueueId
from pilotage.core.queues.draws import RULES, Rule
from pilotage.core.queues.fit import Offer, fits
from pilotage.core.queues.identity import QueueIdentity
from pilotage.core.queues.index import QueueIndex
from pilotage.core.queues.indexed_queue import Head, IndexedQueue, eligible_queues
from pilotage.core.queues.limits import Limit
from pilotage.core.shares.priorities import Priorities
from tests.unit.core.queues.chance import assert_alike, first_of_owner
from tests.unit.core.queues.offers import CPU_BUCKETS, MEMORY_BUCKETS

QUEUES, DRAWS = 200, 12_000
SHARES = {"physics": 1000.0, "theory": 300.0, "tests": 20.0, "nothing": 0.0, "rare": 3000.0}
OFFERS = [
    Offer("here", "ce1", 5000.0, processors=8),
    Offer("there", "ce1", 5000.0, processors=8),
    Offer("here", "ce1", 500.0, processors=8),
    Offer("here", "ce1", 5000.0, processors=1),
    Offer("there", "ce1", 500.0, processors=8, only_owner="owner 1"),
    Offer("there", "ce1", 500.0, processors=8, only_owner="idler"),
]
CLOSED = [
    (),
    (Limit("group", "physics", running=0),),
    (Limit("owner", "owner 0", running=0), Limit("processors", "2", running=0)),
]


def identity_of(number: int) -> QueueIdentity:
    group = ["physics", "physics", "theory", "tests", "nothing"][number % 5]
    if number % 40 == 7:
        # Mostly empty: when a job comes it is likely to be the next one, and a draw that overlooks it is seen.
        return QueueIdentity(
            "rare", "rare", cpu_time=5000 if number % 80 == 7 else 500, job_type=f"type {number}"
        )
    return QueueIdentity(
        owner="idler" if group == "nothing" else f"owner {number % 7}",
        group=group,
        cpu_time=5000 if number % 8 == 3 else 500,
        processors=1 + number % 3,
        requirements="x" if number % 11 == 4 else "",
        sites=frozenset({"here"}) if number % 6 == 1 else frozenset(),
        job_type=f"type {number}",
    )


class Motion:
    """An index over its own shelf, and what happens to it."""

    def __init__(self, rule: Rule) -> None:
        self.rule, self.rng = rule, Random(f"motion {rule}")
        self.numbers = np.random.default_rng(5)
        self.jobs: dict[tuple[int, int], list[int]] = {}
        self.last_job = self.draws = 0
        self.began: dict[int, int] = {}
        self.x_holds = True
        self.index = QueueIndex(
            lambda wanted: [self.heads(*one) for one in wanted],
            rule=rule,
            cpu_buckets=CPU_BUCKETS,
            memory_buckets=MEMORY_BUCKETS,
            priorities=Priorities(SHARES, frozenset({"tests"})),
            rng=Random(9),
        )
        for number in range(QUEUES):
            identity = identity_of(number)
            entity = self.index.priorities.entity(identity.owner, identity.group)
            self.index.add_queue(IndexedQueue(QueueId(number), identity, entity))
            self.fill(number)
        self.settle()
        self.fitting = {
            (offer, held): [
                e for e in self.index.entries.values() if fits(e.identity, offer, lambda _, h=held: h)
            ]
            for offer in OFFERS
            for held in (True, False)
        }

    def heads(self, queue: QueueId, weight: int, after: int, most: int) -> Sequence[Head]:
        jobs = self.jobs.get((queue, weight), [])
        place = bisect_right(jobs, after)
        return [(job,) for job in jobs[place : place + most]]

    def fill(self, number: int) -> None:
        """Some jobs come, of one UserPriority; in every ninth queue of background only."""
        weight = 0 if number % 9 == 5 else self.rng.choice([1, 1, 3])
        for _ in range(self.rng.choice([1, 1, 4])):
            self.last_job += 1
            self.jobs.setdefault((number, weight), []).append(self.last_job)
            if not self.index.entries[QueueId(number)].waiting:
                self.began[number] = self.draws
            self.index.add_jobs(QueueId(number), weight, JobId(self.last_job), 1)

    def settle(self) -> None:
        for _ in self.index.apply_priorities():
            pass

    def holds(self, _: QueueIdentity) -> bool:
        return self.x_holds

    def plain(self, candidates: list[IndexedQueue]) -> IndexedQueue:
        drawn = self.smallest(candidates)
        return drawn if self.rule == "dirac" else self.smallest(first_of_owner(drawn, candidates))

    def smallest(self, candidates: list[IndexedQueue]) -> IndexedQueue:
        if self.rule == "dirac":
            highest = max(one.identity.cpu_time for one in candidates)
            candidates = [one for one in candidates if one.identity.cpu_time == highest]
        weights = np.array([one.priority for one in candidates])
        if not weights.any():
            return candidates[self.numbers.integers(len(candidates))]
        drawn = self.numbers.random(len(weights))
        if self.rule == "proportional":
            drawn = -np.log1p(-drawn)
        with np.errstate(divide="ignore"):
            return candidates[int((drawn / weights).argmin())]

    def told(self, offer: Offer, closed: tuple[Limit, ...], found: IndexedQueue) -> list[Hashable]:
        """What a bias could show in."""
        age = min(3, (self.draws - self.began[found.id]) // 3)
        kind = (OFFERS.index(offer), CLOSED.index(closed))
        identity = found.identity
        return [
            ("queue", found.id),
            ("kind", kind, identity.owner, identity.group),
            ("age", identity.group, age),
            ("special", kind, identity.requirements, found.background, self.x_holds),
        ]

    def draw(self, offer: Offer, closed: tuple[Limit, ...]) -> tuple[list[Hashable], list[Hashable]] | None:
        """One draw of each side among the same; the job of the index is given, or comes back."""
        waiting = [entry for entry in self.fitting[offer, self.x_holds] if entry.waiting]
        candidates = eligible_queues(waiting, self.holds, closed)
        wanted = self.told(offer, closed, self.plain(candidates)) if candidates else None
        # What is told of the winner of the index is how it stood before.
        before = {entry.id: self.told(offer, closed, entry) for entry in candidates}
        found = self.index.propose(self.index.offer_class(offer, closed), self.holds, self.rng)
        assert (found is None) == (wanted is None)
        self.draws += 1
        if found is None or wanted is None:
            return None
        number, weight = int(found.queue), found.user_priority
        self.jobs[number, weight].remove(found.job)
        if self.rng.random() < 0.6:
            entry = self.index.entries[found.queue]
            if not entry.waiting:
                self.began[number] = self.draws
            insort(self.jobs[number, weight], found.job)
            self.index.return_job(found.queue, weight, found.head)
        return before[found.queue], wanted

    def goes_on(self) -> None:
        """Jobs come and are killed; priorities are told, and Requirements change their mind."""
        rng = self.rng
        for _ in range(rng.choice([0, 0, 1, 2])):
            self.fill(rng.randrange(QUEUES))
        if rng.random() < 0.05:
            number = rng.randrange(QUEUES)
            for (queue, weight), jobs in self.jobs.items():
                if queue == number:
                    while jobs:
                        self.index.remove_job(QueueId(number), weight, JobId(jobs.pop()))
        if rng.random() < 0.02:
            self.settle()
        if rng.random() < 0.01:
            self.x_holds = not self.x_holds


@pytest.mark.slow
@pytest.mark.parametrize("rule", RULES)
def test_a_pool_in_motion_draws_by_the_plain_rule(rule: Rule) -> None:
    motion = Motion(rule)
    sides: dict[Hashable, tuple[Counter[Hashable], Counter[Hashable]]] = {}
    offer, closed = OFFERS[0], CLOSED[0]
    compared = 0
    for _ in range(DRAWS):
        if motion.rng.random() < 0.15:
            offer, closed = motion.rng.choice(OFFERS), motion.rng.choice(CLOSED)
        both = motion.draw(offer, closed)
        if both is not None:
            compared += 1
            for mine, plain in zip(*both, strict=True):
                aspect = mine[:1]  # type: ignore[index]
                found, wanted = sides.setdefault(aspect, (Counter(), Counter()))
                found[mine] += 1
                wanted[plain] += 1
        motion.goes_on()
    assert compared > DRAWS * 0.8
    assert len(sides) == 4
    for found, wanted in sides.values():
        assert_alike(found, wanted)
