"""Draws of pilots that come in groups and ask for many jobs, against the plain rule asked at each of them.

Whatever messages share, keep and read ahead, each draw must be one of the plain rule among what waits at that moment:
a number for each queue that fits, the smallest wins; in it a number for each job, which gives a UserPriority; of its
ten lowest ids one. Both sides are asked about the same candidates, so that their counts are of one distribution.
"""

from __future__ import annotations

from bisect import insort
from collections import Counter
from collections.abc import Hashable, Iterator
from dataclasses import replace
from pathlib import Path
from random import Random

import numpy as np
import pytest

from pilotage.core.errors import PilotageError
from pilotage.core.policy import parse
from pilotage.core.queues.draws import FIRST, RULES, Rule
from pilotage.core.queues.fit import fits
from pilotage.core.queues.identity import QueueIdentity
from pilotage.core.queues.indexed_queue import IndexedQueue, eligible_queues
from pilotage.services.matching.match import Match
from pilotage.services.pilots.exchange import exchange_many, token_hash
from pilotage.services.policy.apply import apply_policy
from pilotage.services.pool.offer_cache import Remaining, offer_of
from pilotage.services.shares.corrections import apply_priorities
from pilotage.wire.pilot import Release
from tests.unit.core.queues.chance import assert_alike, first_of_owner
from tests.unit.services.bench import Bench, Paper

DRAWS = 7000
SURE = 5.0
"""In standard deviations: one in three million by chance, and the seeds are fixed."""
OWNERS = {"ann": "physics", "ben": "physics", "cat": "theory", "dan": "tests", "eve": "tests"}
POLICY = """\
[matching]
rule = "{rule}"
[groups.physics]
share = {physics}
[groups.theory]
share = 300
[groups.tests]
share = 100
properties = ["NORMAL_USER", "JOB_SHARING"]
{users}
[sites.here]
[sites.there]
[ces.one]
site = "here"
owners = "any"
[ces.two]
site = "there"
owners = "any"
[[limits]]
attribute = "owner"
value = "ann"
running = 6
[[limits]]
attribute = "processors"
value = "2"
site = "there"
running = {two}
[[limits]]
attribute = "group"
value = "theory"
site = "here"
delay = 3
burst = 2
"""


def policy_of(rule: Rule, physics: int, two: int) -> str:
    users = "".join(f'[users.{owner}]\ngroups = ["{group}"]\n' for owner, group in OWNERS.items())
    return POLICY.format(rule=rule, physics=physics, two=two, users=users)


class Rounds:
    """Pilots come in groups, take, give all back, and leave; jobs come, shares and limits change."""

    def __init__(self, folder: Path, rule: Rule) -> None:
        self.rule, self.rng = rule, Random(f"rounds {rule}")
        self.numbers = np.random.default_rng(11)
        self.bench = Bench(folder, policy_of(rule, 1000, 5))
        self.waiting: dict[tuple[int, int], list[int]] = {}
        self.origin: dict[int, tuple[int, int]] = {}
        self.draws = 0
        self.sides: dict[str, tuple[Counter[Hashable], Counter[Hashable]]] = {}
        for owner in OWNERS:
            for _ in range(14):
                self.submit(owner)
        self.settle()

    def submit(self, owner: str) -> None:
        rng = self.rng
        fields = {
            "cpu_time": rng.choice([0, 0, 5000]),
            "processors": rng.choice([1, 1, 2]),
            "user_priority": rng.choice([0, 1, 3]),
            "sites": rng.choice([(), (), ("here",)]),
        }
        jobs = self.bench.submit(rng.choice([1, 4, 15]), owner=owner, group=OWNERS[owner], **fields)
        queue = self.bench.job(jobs[0])["queue_id"]
        for job in jobs:
            self.origin[job] = queue, fields["user_priority"]  # type: ignore[assignment]
            self.came(job)

    def came(self, job: int) -> None:
        insort(self.waiting.setdefault(self.origin[job], []), job)

    def settle(self) -> None:
        while not self.bench.do(lambda _: apply_priorities(self.bench.pool.queues)):
            pass

    # --- what is done

    def round(self) -> None:
        """Some pilots take in one transaction, some of them twice; then all give back what they have, and leave."""
        bench, rng = self.bench, self.rng
        papers = [
            bench.pilot(rng.choice(["one", "one", "two"]), processors=8) for _ in range(rng.choice([2, 5]))
        ]
        self.together(papers)
        self.together(rng.sample(papers, len(papers) // 2))
        for paper in papers:
            jobs = paper.row.jobs
            releases = [Release(job, bench.job(job)["epoch"], "round") for job in jobs]
            paper.send(releases=releases, leaving="round")
            for job in jobs:
                self.came(job)
        bench.now += rng.choice([0.5, 2.0])

    def together(self, papers: list[Paper]) -> None:
        bench, rng = self.bench, self.rng
        messages = []
        for paper in papers:
            ask = paper.asked(
                rng.choice([1, 3, 8]), ahead=rng.choice([0, 0, 2]), processors=rng.choice([4, 8])
            )
            messages.append((token_hash(paper.token), paper.request(take=ask)))
        answers = bench.do(lambda tx: exchange_many(bench.pool, tx, messages, bench.now))
        for paper, answer in zip(papers, answers, strict=True):
            assert not isinstance(answer, PilotageError)
            paper.number = max(paper.number, (answer.take_number or 0) + 1)

    def goes_on(self) -> None:
        bench, rng = self.bench, self.rng
        if rng.random() < 0.05:
            self.submit(rng.choice(list(OWNERS)))
        if rng.random() < 0.2:
            self.settle()
        if rng.random() < 0.03:
            text = policy_of(self.rule, rng.choice([200, 1000]), rng.choice([0, 5]))
            policy = parse(text)
            bench.do(lambda tx: apply_policy(bench.pool, tx, policy, text, by="a", reason="", now=bench.now))

    # --- what is compared

    def watch(self, monkeypatch: pytest.MonkeyPatch) -> None:
        give = Match._give

        def watched(match: Match, rest: Remaining) -> QueueIdentity | None:
            wanted = self.plain(match, rest)
            before = len(match.given)
            found = give(match, rest)
            assert (found is None) == (wanted is None)
            if wanted is not None:
                given = match.given[before]
                queue, weight = given.queue, given.user_priority
                place = self.waiting[queue, weight].index(given.id)
                assert place < FIRST, f"{place} others of that UserPriority have lower ids"
                self.compare(match, (queue, weight, place), wanted)
                self.waiting[queue, weight].remove(given.id)
            return found

        monkeypatch.setattr(Match, "_give", watched)

    def plain(self, match: Match, rest: Remaining) -> tuple[int, int, int] | None:
        """(queue, UserPriority, place among its lowest ids) by the rule, from what waits now; None: nothing fits."""
        pool, pilot = match.pool, match.pilot
        offer = replace(offer_of(pool.policy, pilot, match.take.node), **rest._asdict())
        closed = pool.offers.limits.limiter.closed_limits(pilot.site, pilot.ce, match.moves.now)
        waiting = [
            e
            for e in pool.queues.index.entries.values()
            if e.waiting and fits(e.identity, offer, lambda _: True)
        ]
        candidates = eligible_queues(waiting, lambda _: True, closed)
        if not candidates:
            return None
        if self.rule == "dirac":
            highest = max(one.identity.cpu_time for one in candidates)
            candidates = [one for one in candidates if one.identity.cpu_time == highest]
        queue: IndexedQueue = candidates[self.smallest([one.priority for one in candidates])]
        if self.rule == "proportional":
            first = first_of_owner(queue, candidates)
            queue = first[self.smallest([one.priority for one in first])]
        jobs = [weight for weight, part in queue.levels.items() for _ in range(part.count)]
        weight = (
            max(jobs) if self.rule == "proportional" else jobs[self.smallest([float(one) for one in jobs])]
        )
        there = len(self.waiting[queue.id, weight])
        assert there == queue.levels[weight].count
        return queue.id, weight, int(self.numbers.integers(min(FIRST, there)))

    def smallest(self, weights: list[float]) -> int:
        """The place of the smallest draw."""
        given = np.array(weights)
        if not given.any():
            return int(self.numbers.integers(len(given)))
        drawn = self.numbers.random(len(given))
        if self.rule == "proportional":
            drawn = -np.log1p(-drawn)
        with np.errstate(divide="ignore"):
            return int((drawn / given).argmin())

    def compare(self, match: Match, found: tuple[int, int, int], wanted: tuple[int, int, int]) -> None:
        self.draws += 1
        nth = min(3, len(match.given) - 1)
        for side, (queue, weight, place) in enumerate((found, wanted)):
            identity = match.pool.queues.index.entries[queue].identity  # type: ignore[index]
            for aspect, key in {
                "queue": queue,
                "owner by the draw of its take": (nth, match.pilot.ce, identity.owner),
                "UserPriority": (queue, weight),
                "place": place,
            }.items():
                self.sides.setdefault(aspect, (Counter(), Counter()))[side][key] += 1


@pytest.fixture(params=RULES)
def rounds(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Rounds]:
    made = Rounds(tmp_path, request.param)
    yield made
    made.bench.check()
    made.bench.end()


@pytest.mark.slow
def test_groups_of_pilots_that_take_many_jobs_draw_by_the_plain_rule(
    rounds: Rounds, monkeypatch: pytest.MonkeyPatch
) -> None:
    rounds.watch(monkeypatch)
    while rounds.draws < DRAWS:
        rounds.round()
        rounds.goes_on()
    assert len(rounds.sides) == 4
    for found, wanted in rounds.sides.values():
        assert_alike(found, wanted, SURE)
