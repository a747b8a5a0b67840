"""The waiting jobs of a benchmark: task queues, and the submissions of their jobs. Seeded."""

from __future__ import annotations

import argparse
import json
from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

from pilotage.core.queues.identity import QueueIdentity
from pilotage.wire.pilot import Node

GROUPS, OWNERS, SITES, PLATFORMS = 5, 50, 40, ("el8", "el9")
SIZES, OFTEN = (1, 10, 100, 300, 1000), (25, 25, 25, 15, 10)
"""Numbers of jobs in a submission, with the frequency of each number."""
USER_PRIORITIES = (1, 1, 1, 2, 5)
PROCESSORS = 8
"""Cores of a node for each job that its pilot asks for."""
LHCB = Path(__file__).resolve().parents[1].parent / "shared" / "traces" / "lhcb-queue-shape-2026-03.json"


class Absent(Exception):
    """A requirement of a benchmark is missing; the message names it."""


@dataclass(frozen=True, slots=True)
class Submission:
    queue: int
    """Place of its queue in the shape."""
    priority: int
    jobs: int


@dataclass(frozen=True, slots=True)
class Shape:
    queues: Sequence[QueueIdentity]
    submissions: Sequence[Submission]
    """In the order of their ids."""
    sites: Sequence[str]
    platforms: Sequence[str]
    """Platforms of the nodes."""
    cpu_left: Sequence[float]
    """CPU time left on the nodes."""
    told: str

    @property
    def jobs(self) -> int:
        return sum(one.jobs for one in self.submissions)

    def node(self, rng: Random, ask: int = 1) -> Node:
        """The node of a pilot that asks for `ask` jobs, with room for all of them."""
        seconds = rng.choice(self.cpu_left)
        return Node(
            hostname="n",
            platform=rng.choice(self.platforms),
            processors=PROCESSORS * ask,
            memory=rng.choice((8000, 16000, 32000)) * ask,
            cpu_left=seconds,
            wall_left=seconds,
        )


def shape_of(asked: argparse.Namespace) -> Shape:
    """As `--shape`, `--jobs` and `--queues` say; raises `Absent`."""
    if asked.shape == "lhcb":
        return lhcb(asked.jobs)
    return synthetic(asked.jobs or 1_000_000, asked.queues)


def synthetic(jobs: int, queues: int) -> Shape:
    """As a pool of several groups has them: a third bound to some sites, some with platforms or much memory."""
    rng = Random(1)
    identities = [_identity(number, rng) for number in range(queues)]
    told = f"{jobs:,} jobs in {queues:,} queues, {OWNERS} owners, {SITES} sites"
    submissions = _spread(jobs, queues, rng)
    sites = [f"s{site}" for site in range(SITES)]
    return Shape(identities, submissions, sites, PLATFORMS, (60000.0, 400000.0), told)


def _identity(number: int, rng: Random) -> QueueIdentity:
    owner = rng.randrange(OWNERS)
    some = frozenset(f"s{site}" for site in rng.sample(range(SITES), rng.randrange(1, 6)))
    return QueueIdentity(
        f"o{owner}",
        f"g{owner % GROUPS}",
        cpu_time=rng.choice((500, 5000, 50000, 300000)),
        memory=rng.choice((0, 2000, 4000, 8000, 16000)),
        processors=rng.choice((1, 1, 1, 2, 8)),
        job_type=f"T{number}",
        sites=some if number % 3 == 0 else frozenset(),
        platforms=frozenset(rng.sample(PLATFORMS, 1)) if number % 5 == 0 else frozenset(),
    )


def _spread(jobs: int, queues: int, rng: Random) -> list[Submission]:
    """Submissions of `jobs` together, at least one in every queue, in any order; smaller ones where jobs are few."""
    mean = sum(size * often for size, often in zip(SIZES, OFTEN, strict=True)) / sum(OFTEN)
    scale = min(1.0, 0.8 * jobs / queues / mean)
    places = list(range(queues))
    rng.shuffle(places)
    found: list[Submission] = []
    left = jobs
    while left > 0:
        without = max(0, queues - len(found) - 1)
        queue = places[len(found)] if len(found) < queues else rng.randrange(queues)
        size = max(1, round(_size(rng) * scale))
        size = max(1, min(size, left - without))
        found.append(Submission(queue, rng.choice(USER_PRIORITIES), size))
        left -= size
    return found


def _size(rng: Random) -> int:
    return rng.choices(SIZES, OFTEN)[0]


def lhcb(jobs: int | None) -> Shape:
    """The marginal distributions of a task queue database of LHCb; `jobs`: as many, in the same proportions."""
    if not LHCB.exists():
        raise Absent(f"the shape of LHCb's task queues is not here ({LHCB.name}): skipped")
    facts = json.loads(LHCB.read_text())
    rng = Random(2)
    sizes: list[tuple[int, int]] = [tuple(one) for one in facts["queue_sizes_and_cpu_seconds"]]
    scale = jobs / facts["jobs"] if jobs else 1.0
    sites, platforms = facts["sites_fraction_of_queues"], facts["platforms_fraction_of_queues"]
    type_of = _drawing(facts["job_types_queues"], rng)
    owners = _owners(sizes, facts["owners_queues"])
    identities, submissions = [], list[Submission]()
    for place, ((size, cpu), (owner, group)) in enumerate(zip(sizes, owners, strict=True)):
        # One number for both lists, as they are nested; nothing at all means anywhere.
        drawn = rng.random()
        identities.append(
            QueueIdentity(
                owner,
                group,
                cpu_time=cpu,
                # The digest of two queues must differ: the shape has no more attributes of theirs.
                job_type=f"{type_of()}{place}",
                sites=frozenset(site for site, part in sites.items() if part >= drawn),
                platforms=frozenset(name for name, part in platforms.items() if part >= drawn),
            )
        )
        left = max(1, round(size * scale))
        while left > 0:
            part = min(_size(rng), left)
            submissions.append(Submission(place, rng.choice(USER_PRIORITIES), part))
            left -= part
    rng.shuffle(submissions)
    usual = [name for name, part in platforms.items() if part > 0.5]
    total = sum(one.jobs for one in submissions)
    told = f"{total:,} jobs in {len(identities):,} queues, the shape of LHCb's"
    longest = float(max(cpu for _, cpu in sizes))
    return Shape(identities, submissions, list(sites), usual, (longest / 4, longest), told)


def _drawing(weights: dict[str, int], rng: Random) -> Callable[[], str]:
    names, often = list(weights), list(weights.values())
    return lambda: rng.choices(names, often)[0]


def _owners(sizes: Sequence[tuple[int, int]], entities: Sequence[dict[str, Any]]) -> list[tuple[str, str]]:
    """Whose each queue is: each entity has as many as it should, of about the size of its own."""
    free = sorted(range(len(sizes)), key=lambda place: sizes[place][0])
    found = [("", "")] * len(sizes)
    for one in sorted(entities, key=lambda one: float(one["jobs"] / one["queues"])):
        count = min(one["queues"], len(free))
        middle = bisect_left(free, one["jobs"] / one["queues"], key=lambda place: sizes[place][0])
        first = max(0, min(middle - count // 2, len(free) - count))
        for place in free[first : first + count]:
            found[place] = (one["owner"], one["group"])
        del free[first : first + count]
    return found
