"""Both demands of the director on the same logged workload, in virtual time."""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Callable, Sequence
from pathlib import Path
from random import Random
from typing import get_args

from benchmarks.figure import Figure, part, told
from benchmarks.pilot_simulation import Outcome, SimulatedCe, simulate
from benchmarks.workload_log import Window, read_window
from pilotage.core.policy.director import Demand, Director

SUMMARY = "pilots that both demands submit for the same logged workload, in virtual time"

TRACE = Path(__file__).resolve().parents[1].parent / "shared" / "traces" / "LCG-2005-1.swf.gz"
SPREAD = (0.25, 0.5, 1.0, 2.0, 4.0)
"""Median waits of the CEs, relative to the option."""

MEASURES: dict[str, Callable[[Outcome], float]] = {
    "pilots submitted": lambda outcome: outcome.submitted,
    "pilots cancelled while they waited": lambda outcome: outcome.cancelled,
    "pilots that started and never had a job": lambda outcome: outcome.without_job,
    "core-hours of payload": lambda outcome: outcome.payload / 3600,
    "core-hours idle": lambda outcome: outcome.idle / 3600,
    "jobs' wait, median, s": lambda outcome: part(sorted(outcome.waits), 0.5),
    "jobs' wait, 95th percentile, s": lambda outcome: part(sorted(outcome.waits), 0.95),
    "pilots waiting at most": lambda outcome: outcome.most_waiting,
    "jobs never started": lambda outcome: outcome.never_started,
}


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--trace", type=Path, default=TRACE, help="a log in the Standard Workload Format")
    parser.add_argument("--skip", type=int, default=20_000, help="jobs of the log before the first one")
    parser.add_argument("--jobs", type=int, default=5_000)
    parser.add_argument("--ces", type=int, default=10)
    parser.add_argument("--dead", type=int, default=0, help="so many of the CEs never start a pilot")
    parser.add_argument("--max-waiting", type=int, default=50, help="of each CE")
    parser.add_argument("--max-running", type=int, default=200, help="of each CE")
    parser.add_argument("--wait", type=float, default=600.0, help="median seconds in a batch system")
    parser.add_argument("--idle", type=float, default=120.0, help="seconds without a job that end a pilot")
    parser.add_argument("--private", type=float, default=0.5, help="PrivatePilotFraction")
    parser.add_argument("--runs", type=int, default=3, help="runs with different seeds")


def run(asked: argparse.Namespace) -> Figure:
    window = read_window(asked.trace, asked.skip, asked.jobs)
    outcomes = {demand: outcomes_of(demand, window, asked) for demand in get_args(Demand)}
    rows = {
        measure: {demand: statistics.median(map(value, runs)) for demand, runs in outcomes.items()}
        for measure, value in MEASURES.items()
    }
    submitted = rows["pilots submitted"]
    notes = {
        "facts": f"{asked.trace.name}, {len(window.jobs):,} jobs after {asked.skip:,}"
        f" ({window.left_out:,} rows left out), {asked.ces} CEs, {asked.dead} of them dead, seeds 1 to {asked.runs}"
    }
    for measure, row in rows.items():
        notes[measure] = ", ".join(f"{demand} {told(value)}" for demand, value in row.items())
    return Figure(
        *("demand", submitted["dirac"], "pilots", {"matched": submitted["matched"]}),
        round(submitted["dirac"] / max(1, submitted["matched"]), 3),
        [float(outcome.submitted) for outcome in outcomes["dirac"]],
        notes,
    )


def outcomes_of(demand: Demand, window: Window, asked: argparse.Namespace) -> Sequence[Outcome]:
    """A run for each seed."""
    settings = Director(demand=demand, private_pilot_fraction=asked.private)
    return [simulate(window.jobs, ces_of(asked), settings, Random(seed)) for seed in range(1, asked.runs + 1)]


def ces_of(asked: argparse.Namespace) -> list[SimulatedCe]:
    """CEs with different waits; the last ones are dead."""
    return [
        SimulatedCe(
            f"ce{number}",
            asked.wait * SPREAD[number % len(SPREAD)] if number < asked.ces - asked.dead else None,
            asked.max_waiting,
            asked.max_running,
            idle=asked.idle,
        )
        for number in range(asked.ces)
    ]
