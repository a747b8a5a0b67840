"""Random graphs of jobs with random ends, kills and reschedules: each dependant ends, and none starts too early."""

from __future__ import annotations

from collections.abc import Mapping
from random import Random
from typing import Any

import pytest

from pilotage.core.jobs.dependencies import Outlook, RunAfter, outlook_of_job, outlook_of_submission
from pilotage.core.jobs.states import FINAL, JobState
from tests.unit.services.bench import RETRY_DELAY, Bench
from tests.unit.services.settling import advance, with_fan_out

Conditions = list[tuple[RunAfter, int | None, list[int]]]
"""A condition, its parent if it is a job, and all jobs of its parent."""


class RandomGraph:
    """A graph, its jobs, and every condition that held at some instant."""

    def __init__(self, bench: Bench, rng: Random, size: int) -> None:
        self.bench, self.rng = bench, rng
        self.pilot = bench.pilot()
        self.conditions: dict[int, Conditions] = {}
        self.held: set[tuple[int, int]] = set()
        submissions: list[list[int]] = []
        while len(self.conditions) < size:
            submissions.append(self._submit(submissions))

    def _submit(self, before: list[list[int]]) -> list[int]:
        rng = self.rng
        count = rng.choice([1, 1, 1, 2, 5])
        alike = [number for number, jobs in enumerate(before, 1) if len(jobs) == count]
        if alike and rng.random() < 0.2:
            number = rng.choice(alike)
            jobs = self.bench.submit(count, after_each=(f"s:{number}",))
            for job, counterpart in zip(jobs, before[number - 1], strict=True):
                self.conditions[job] = [(RunAfter.SUCCEEDED, counterpart, [counterpart])]
            return jobs
        named: dict[RunAfter, list[str]] = {}
        conditions: Conditions = []
        for _ in range(rng.randrange(4) if before else 0):
            condition, number = rng.choice(list(RunAfter)), rng.randrange(len(before)) + 1
            parent = rng.choice([None, *before[number - 1]])
            text = f"s:{number}" if parent is None else str(parent)
            if text not in named.setdefault(condition, []):
                named[condition].append(text)
                conditions.append((condition, parent, before[number - 1] if parent is None else [parent]))
        fields: dict[str, Any] = {str(condition): tuple(texts) for condition, texts in named.items()}
        jobs = self.bench.submit(count, **fields)
        self.conditions |= dict.fromkeys(jobs, conditions)
        return jobs

    def states(self) -> dict[int, JobState]:
        sql = "SELECT id, state FROM jobs UNION ALL SELECT id, state FROM history"
        return {job: JobState(state) for job, state in self.bench.connection.execute(sql)}

    def outlook(self, job: int, place: int, states: Mapping[int, JobState]) -> Outlook:
        condition, parent, jobs = self.conditions[job][place]
        if parent is not None:
            return outlook_of_job(condition, states[parent])
        unfinished = any(states[one] not in FINAL for one in jobs)
        failed = any(states[one] in FINAL and states[one] is not JobState.DONE for one in jobs)
        return outlook_of_submission(condition, unfinished=unfinished, failed=failed)

    def look(self) -> None:
        """Note which conditions hold now."""
        states = self.states()
        for job, conditions in self.conditions.items():
            for place in range(len(conditions)):
                if self.outlook(job, place, states) is Outlook.MET:
                    self.held.add((job, place))

    def step(self) -> None:
        bench, rng = self.bench, self.rng
        job = rng.choice(list(self.conditions))
        match rng.randrange(12):
            case 0:
                bench.act("kill", job)
            case 1:
                bench.act("reschedule", job)
            case 2:
                bench.later(RETRY_DELAY)
                bench.tidy(hot=rng.choice([0.0, 100.0]), most=20)
            case 3:
                bench.crash(self.advance(rng.randrange(1, 20)))
                self.pilot = bench.pilot()
            case 4 | 5 | 6:
                bench.do(self.advance(rng.randrange(1, 20)))
            case _:
                self.run_one(rng)
        self.look()

    def advance(self, most: int):  # type: ignore[no-untyped-def]
        return lambda tx: advance(self.bench.pool, tx, most, self.bench.now)

    def settle(self) -> None:
        for _ in range(2000):
            if self.bench.do(self.advance(10)):
                return
            self.look()
        raise AssertionError("the dependants never settle")

    def run_one(self, rng: Random) -> bool:
        offers = self.pilot.take()
        for offer in offers:
            for place in range(len(self.conditions[offer.job])):
                assert (offer.job, place) in self.held, f"job {offer.job} starts before its condition {place}"
            fails = rng.random() < 0.3
            failure = rng.choice(["payload", "node"]) if fails else ""
            assert self.pilot.finish(offer, exit_code=int(fails), failure=failure) == "accepted"
        return bool(offers)

    def finish(self) -> None:
        """Run everything that is left."""
        for _ in range(5000):
            self.settle()
            self.look()
            if not self.run_one(self.rng):
                self.bench.later(RETRY_DELAY)
                self.settle()
                if not self.run_one(self.rng):
                    return
            self.look()
        raise AssertionError("the graph never ends")


@pytest.mark.parametrize("seed", range(8))
def test_each_dependant_ends_and_none_starts_before_its_condition(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    with_fan_out(monkeypatch, 3)
    graph = RandomGraph(bench, Random(seed), 60 if bench.database else 200)
    graph.look()
    for _ in range(60 if bench.database else 200):
        graph.step()
    graph.finish()
    states = graph.states()
    assert {state for state in states.values() if state not in FINAL} == set()
    for job, state in states.items():
        if state is JobState.SKIPPED:
            outlooks = [graph.outlook(job, place, states) for place in range(len(graph.conditions[job]))]
            assert Outlook.NEVER in outlooks, f"job {job} is skipped, though it could run"
    assert JobState.SKIPPED in states.values()
