"""Results and measures that no simulation made: groups share 100 cores by their weights."""

from __future__ import annotations

import math
from collections.abc import Mapping
from random import Random

from pilotage.core.policy import Policy, parse
from pilotage.twin.ces import TwinCe, TwinNodes
from pilotage.twin.measures import RunMeasures, measure_run
from pilotage.twin.report.study import PolicyRuns, Study
from pilotage.twin.result import (
    JobRun,
    JobRuns,
    PilotRun,
    PilotRuns,
    TwinCounts,
    TwinOutcome,
    TwinResult,
    TwinSample,
    TwinSamples,
)

CORES = 100
SPAN = 10 * 86400.0
CES = (TwinCe("grid", (TwinNodes(15, 8),), waits=(0.0, 60.0, 600.0, 7200.0), failure_rate=0.001),)


def policy_of(weights: Mapping[str, float]) -> Policy:
    groups = "".join(f"[groups.'{name}']\nshare = {weight}\n" for name, weight in weights.items())
    users = "".join(
        f"[users.'{name}-{number}']\ngroups = ['{name}']\n" for name in weights for number in range(2)
    )
    return parse(groups + users)


def invented_result(weights: Mapping[str, float], seed: int, step: float = 3600.0) -> TwinResult:
    rng = Random(seed)
    samples, used = TwinSamples(tuple(weights)), dict.fromkeys(weights, 0.0)
    for place in range(int(SPAN / step)):
        now = place * step
        active = [name for number, name in enumerate(weights) if math.sin(place / 24 + number) > -0.6]
        total = sum(weights[name] for name in active) or 1.0
        entitled = {name: weights[name] / total for name in active}
        busy = min(CORES, 30 + 25 * len(active)) if active else 0
        samples.add(TwinSample(now, dict(used), busy, rng.randrange(1, 12), rng.randrange(6), 40, busy))
        for name in active:
            used[name] += entitled[name] * busy * step * rng.uniform(0.97, 1.03)
    return TwinResult(
        seed, SPAN, _jobs(weights, used, rng), _pilots(rng), samples, TwinCounts(400, 420, 9000), 12.5
    )


def _jobs(weights: Mapping[str, float], used: Mapping[str, float], rng: Random) -> JobRuns:
    jobs, count = JobRuns(), 200
    for place, (name, weight) in enumerate(weights.items()):
        for number in range(count):
            submit = number * SPAN / count
            wait = rng.lognormvariate(6, 1.5) * 100 / weight
            start = submit + wait if submit + wait < SPAN else None
            run = used[name] / count
            end = None if start is None or start + run > SPAN else start + run
            outcome = TwinOutcome.WAITING if start is None else TwinOutcome.RUNNING
            jobs.add(
                JobRun(
                    number=place * count + number,
                    owner=f"{name}-{number % 2}",
                    group=name,
                    processors=1,
                    submit=submit,
                    start=start,
                    end=end,
                    attempts=0 if start is None else 1 + (number % 50 == 0),
                    outcome=TwinOutcome.DONE if end is not None else outcome,
                    run=run,
                    used=0.0 if start is None else min(SPAN, start + run) - start,
                )
            )
    return jobs


def _pilots(rng: Random) -> PilotRuns:
    pilots = PilotRuns()
    for number in range(300):
        requested = number * SPAN / 400
        life = 8 * 86400.0
        parts = (0.86 + rng.uniform(0, 0.02), 0.01, 0.08, 0.02)
        began = number % 40 != 0
        sums = [life * part * began for part in parts]
        pilots.add(
            PilotRun("grid", 8, requested, requested + 60 if began else None, requested + life / 8, *sums)
        )
    return pilots


def invented_run(weights: Mapping[str, float], seed: int = 1) -> RunMeasures:
    return measure_run(invented_result(weights, seed), policy_of(weights), CES)


WEIGHTS = {"atlas": 100.0, "cms": 60.0, "lhcb": 30.0, "alice": 30.0, "<b>&lt;": 10.0}
OTHER = {"atlas": 60.0, "cms": 100.0, "lhcb": 30.0, "alice": 30.0, "<b>&lt;": 10.0}


def invented_study(seeds: int = 3, both: bool = True, finished: int | None = None) -> Study:
    last = seeds if finished is None else finished
    policies = [PolicyRuns("base.toml", [invented_run(WEIGHTS, seed) for seed in range(1, last + 1)])]
    if both:
        policies.append(
            PolicyRuns("cms-first.toml", [invented_run(OTHER, seed) for seed in range(1, last + 1)])
        )
    return Study(
        trace="LCG-2005.swf.gz",
        jobs=1000,
        seeds=tuple(range(1, seeds + 1)),
        policies=tuple(policies),
        fits=("run times are those of the trace", "CE grid (120 cores): no waits"),
        notes=("521 lines (41,454, 64,804, 160,538, ...): the run time is 0",),
        interrupted=finished is not None,
    )
