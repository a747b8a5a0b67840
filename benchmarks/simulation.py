"""Histories with faults in virtual time, as `tests/simulation` tries them: one after another, on one core."""

from __future__ import annotations

import argparse
import statistics
import time

from tests.simulation.world import History, simulate

from benchmarks.figure import Figure, figure
from benchmarks.shapes import Absent

SUMMARY = "histories with faults (seeds) that one core simulates in a minute of processor time"
AIM = 200.0
"""Seeds a minute."""


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--first", type=int, default=1, help="the first seed")
    parser.add_argument("--store", choices=("sqlite", "postgresql"), default="sqlite")


def run(asked: argparse.Namespace) -> Figure:
    # The first one loads what all use.
    _history(asked.first, asked.store)
    virtual, runs, faults, jobs, messages = 0.0, [], [], [], []
    for seed in range(asked.first, asked.first + asked.seeds):
        begun = time.process_time()
        history = _history(seed, asked.store)
        runs.append(60 / (time.process_time() - begun))
        virtual += history.seconds
        faults.append(len(history.happened))
        jobs.append(history.jobs)
        messages.append(history.messages)
    spent = sum(60 / one for one in runs)
    notes = {
        "processor time": f"{spent / len(runs):.2f} s for a seed",
        "faster than real": f"{virtual / spent:,.0f} virtual seconds in a second",
        "each seed": f"{statistics.mean(faults):.0f} faults, {statistics.mean(jobs):.0f} jobs,"
        f" {statistics.mean(messages):,.0f} messages",
    }
    return figure("simulation", "seeds/min", runs, {"aim": AIM}, notes, against="aim")


def _history(seed: int, store: str) -> History:
    history = simulate(seed, store=store)
    if history.failure:
        raise Absent(f"seed {seed} has failed: {history.failure}")
    return history
