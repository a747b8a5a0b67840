"""A pool of slots in virtual time: the real index, priorities, ledger and correctors; only the jobs are made up."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from random import Random

import numpy as np

from pilotage.core.ids import QueueId
from pilotage.core.queues.draws import Rule
from pilotage.core.queues.fit import Offer
from pilotage.core.queues.identity import QueueIdentity
from pilotage.core.queues.index import QueueIndex
from pilotage.core.queues.indexed_queue import IndexedQueue
from pilotage.core.shares.correction import Corrections, Facts, Memory, correct
from pilotage.core.shares.corrector import CorrectorInstance
from pilotage.core.shares.priorities import Priorities
from pilotage.core.shares.use import DAY, HOUR, Ledger, Unit, columns_of

BEGIN = 1_700_006_400.0
PERIOD = 1800.0
PERIODS = int(DAY / PERIOD)
"""Corrections in a day."""
HISTORY = 35.0 * DAY
ENDLESS = 10**9
"""So many jobs has a queue that always waits."""

OFFER = Offer("here", "ce1", 300000.0, processors=8)


@dataclass(frozen=True)
class Flow:
    """What a group has waiting: `queues` of `jobs` each, that run for about `length` seconds on `cores`."""

    length: float = HOUR
    cores: int = 1
    queues: int = 1
    jobs: int = ENDLESS
    present: Callable[[float], bool] = lambda _: True
    """Whether jobs wait, by days since the beginning."""


@dataclass
class Pool:
    """`steps`: by days since the beginning, so many seconds the clock steps then."""

    flows: Mapping[str, Flow]
    shares: Mapping[str, float]
    rule: Rule
    instances: Mapping[str, CorrectorInstance]
    """By name; correctors run in the order in which they are first named."""
    slots: int = 100
    seed: int = 1
    steps: dict[float, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.rng = Random(self.seed)
        self.time = 0.0
        self.ahead = BEGIN
        """What the clock shows is so much ahead of `time`."""
        priorities: Priorities[QueueId] = Priorities(self.shares, frozenset())
        self.index = QueueIndex(
            lambda wanted: [[(one.after + 1 + step,) for step in range(one.limit)] for one in wanted],
            rule=self.rule,
            cpu_buckets=(500,),
            memory_buckets=(500,),
            priorities=priorities,
            rng=self.rng,
        )
        self.groups: list[str] = [group for group, flow in self.flows.items() for _ in range(flow.queues)]
        self.waits = [False] * len(self.groups)
        for number, group in enumerate(self.groups):
            identity = QueueIdentity("owner", group, cpu_time=500, job_type=str(number), tags=frozenset())
            self.index.add_queue(IndexedQueue(QueueId(number), identity, ("owner", group)))
        self.ledger = Ledger(BEGIN, HISTORY)
        self.corrected_at = BEGIN
        self.memory: Memory = {}
        self.corrections = Corrections()
        self.factors: list[dict[str, float]] = []
        self.ends = [(0.0, slot) for slot in range(self.slots)]
        self.running: dict[int, tuple[str, float]] = {}
        """By slot: whose, and when the clock says that it began."""
        self.attempts: list[tuple[str, str, float, float | None, int]] = []
        """As the clock tells of those that have ended."""
        self.jobs: list[tuple[str, float, float, int]] = []
        """As it is, whatever the clock says."""

    def run(self, days: float) -> Pool:
        until = self.time + days * DAY
        while self.time < until:
            self._period()
        return self

    def _period(self) -> None:
        until = self.time + PERIOD
        for number, group in enumerate(self.groups):
            flow = self.flows[group]
            if flow.present(self.time / DAY) != self.waits[number]:
                self.waits[number] = not self.waits[number]
                self.index.reset_queue(QueueId(number), {1: flow.jobs} if self.waits[number] else {})
        self._settle()
        while self.ends[0][0] < until:
            self._slot_is_free(*heapq.heappop(self.ends), until)
        self.time = until
        self._correct()
        for day in [day for day in self.steps if day * DAY <= self.time]:
            self._step(self.steps.pop(day))

    def _slot_is_free(self, at: float, slot: int, until: float) -> None:
        if slot in self.running:
            group, started = self.running.pop(slot)
            row = ("owner", group, started, self.ahead + at, self.flows[group].cores)
            self.attempts.append(row)
        found = self.index.propose(self.index.offer_class(OFFER), lambda _: True, self.rng)
        if found is None:
            heapq.heappush(self.ends, (until, slot))
            return
        group = self.groups[found.queue]
        flow = self.flows[group]
        end = at + flow.length * self.rng.uniform(0.8, 1.2)
        self.jobs.append((group, at, end, flow.cores))
        self.running[slot] = (group, self.ahead + at)
        heapq.heappush(self.ends, (end, slot))

    def _correct(self) -> None:
        before, now = self.ledger.as_of, self.ahead + self.time
        latest = len(self.attempts)
        while latest and (self.attempts[latest - 1][3] or now) > before:
            latest -= 1
        rows = self.attempts[latest:] + [
            ("owner", group, started, None, self.flows[group].cores)
            for group, started in self.running.values()
        ]
        self.ledger.charge([columns_of(self.ledger, rows)], now)
        self.ledger.forget_old()
        facts = Facts(
            shares=self.shares,
            owners=self.index.priorities.waiting_owners(),
            admits=lambda _owner, group: group in self.shares,
            use=self.ledger.over,
            decayed_use=self.ledger.decayed,
            elapsed=self.ledger.up_time(self.corrected_at, now),
        )
        self.corrected_at = now
        if self.instances:
            correctors: dict[str, dict[str, CorrectorInstance]] = {}
            for name, instance in self.instances.items():
                correctors.setdefault(instance.corrector, {})[name] = instance
            self.corrections = correct(list(correctors), correctors, facts, self.memory)
            self.memory = self.corrections.memory
            self.index.priorities.correct(self.corrections.groups, self.corrections.owners)
        self.factors.append({group: self.corrections.groups.get(group, 1.0) for group in self.flows})

    def _settle(self) -> None:
        for _ in self.index.apply_priorities():
            pass

    def _step(self, seconds: float) -> None:
        """As the store does it: forward is an outage; after a step back nothing ahead is believed, all made anew."""
        before, self.ahead = self.ahead + self.time, self.ahead + seconds
        now = self.ahead + self.time
        if seconds > 0:
            self.ledger.outages.append((before, now))
            return
        self.attempts = [
            (*row[:3], now if row[3] is not None and row[3] > now else row[3], row[4])
            for row in self.attempts
        ]
        self.running = {slot: (group, min(now, started)) for slot, (group, started) in self.running.items()}
        outages = [outage for outage in self.ledger.outages if outage[1] <= now]
        self.ledger = Ledger(BEGIN, HISTORY, outages)

    # --- what came of it

    def part(self, group: str, begin: float, end: float, unit: Unit = "jobs") -> float:
        """What `group` had of all that ran between two days."""
        used = {
            name: sum(
                (cores if unit == "cores" else 1)
                * max(0.0, min(ended, end * DAY) - max(started, begin * DAY))
                for owner, started, ended, cores in self.jobs
                if owner == name
            )
            for name in self.flows
        }
        return used[group] / sum(used.values())

    def parts(self, group: str, days: float, unit: Unit = "jobs") -> list[float]:
        """The same, day by day (or by other lengths), all along."""
        count = int(self.time / DAY / days)
        edges = np.arange(count + 1) * days * DAY
        found = {}
        for name in self.flows:
            rows = [(s, e, c if unit == "cores" else 1) for owner, s, e, c in self.jobs if owner == name]
            columns = np.array(rows or [(0.0, 0.0, 0)])
            starts, ends, weights = columns[:, 0], columns[:, 1], columns[:, 2]
            found[name] = np.array(
                [
                    (weights * np.clip(np.minimum(ends, after) - np.maximum(starts, before), 0, None)).sum()
                    for before, after in pairwise(edges)
                ]
            )
        whole = np.maximum(sum(found.values()), 1e-9)
        return [float(value) for value in found[group] / whole]
