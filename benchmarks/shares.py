"""A whole share correction: charge the usage, compute the factors, apply every priority.

`rules` uses no store. Reading and saving are measured around it.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from random import Random

import numpy as np

from benchmarks.figure import Figure, figure
from pilotage.core.shares.correction import Corrections, Facts, Memory, correct
from pilotage.core.shares.correctors.wms_history import CorrectionSlice, Form, HistoryInstance
from pilotage.core.shares.priorities import Priorities
from pilotage.core.shares.use import DAY, HOUR, Ledger, UseIntervals

SUMMARY = "ms of one share correction and all priorities after it: 5,000 queues, 1,000 owners, a month of use"

BEGIN = 1_700_000_000.0
GROUPS = 10
SLICES = {
    "Hour": CorrectionSlice(time_span=HOUR, weight=20, max_correction=5),
    "Week": CorrectionSlice(time_span=7 * DAY, weight=50, max_correction=3),
    "Month": CorrectionSlice(time_span=30 * DAY, weight=30, max_correction=2),
}
PERIOD = 60.0
DIRAC = "DIRAC 9.1, priorities alone (field notes: 3.6 to 5.2 s)"


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--queues", type=int, default=5_000)
    parser.add_argument("--owners", type=int, default=1_000)
    parser.add_argument("--running", type=int, default=2_000, help="jobs that run at the same time")
    parser.add_argument("--form", choices=("ratio", "integral"), default="ratio")
    parser.add_argument("--runs", type=int, default=15)


def run(asked: argparse.Namespace) -> Figure:
    pool = filled(asked.queues, asked.owners, asked.running, asked.form)
    runs, parts = [], dict[str, list[float]]()
    for _ in range(asked.runs + 1):
        begun = time.perf_counter()
        for part, seconds in rules(pool):
            parts.setdefault(part, []).append(seconds * 1000)
        runs.append((time.perf_counter() - begun) * 1000)
    assert pool.settled == asked.queues, "not every priority was settled"
    steady, first = _stored(pool, asked)
    notes = {
        "pool": f"{asked.queues:,} queues, {asked.owners:,} owners in {GROUPS} groups, {asked.running:,} running"
        " jobs; 30 days of use; instances between the groups and between the owners of each; 3 slices",
        "parts": ", ".join(
            f"{part} {sorted(times)[len(times) // 2]:.1f} ms" for part, times in parts.items()
        ),
        "with reading and saving (SQLite, synchronous=FULL), index included": f"{steady:.1f} ms; {first:.1f} ms the"
        " first time, when a month of use is read",
        "ratio": "ours to DIRAC's lower figure: below 1 is faster",
    }
    # The first run fills caches of the interpreter and of numpy.
    return figure("shares", "ms", [round(one, 1) for one in runs[1:]], {DIRAC: 3600.0}, notes)


def _stored(pool: Pool, asked: argparse.Namespace) -> tuple[float, float]:
    """Medians of the server's whole cycle: in steady state, and with nothing in memory."""
    from benchmarks.shares_stored import Stored

    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        stored = Stored(Path(folder), pool, asked.queues)
        try:
            first = [stored.first_cycle() for _ in range(asked.runs)]
            steady = [stored.cycle() for _ in range(asked.runs)]
        finally:
            stored.close()
    return statistics.median(steady), statistics.median(first)


@dataclass
class Pool:
    """All that a correction looks at and changes."""

    ledger: Ledger
    priorities: Priorities[int]
    shares: dict[str, float]
    owners: frozenset[tuple[str, str]]
    instances: dict[str, HistoryInstance]
    running: UseIntervals
    memory: Memory
    held: dict[int, float]
    """The priority of each queue, as the index holds it."""
    settled: int = 0


def filled(queues: int, owners: int, running: int, form: Form) -> Pool:
    rng = Random(1)
    shares = {f"g{number}": rng.choice([1000.0, 2000.0, 5000.0]) for number in range(GROUPS)}
    people = [(f"o{number}", f"g{number % GROUPS}") for number in range(owners)]
    ledger = Ledger(BEGIN, 400.0 * DAY)
    places = [ledger.place(entity) for entity in people]
    # A month of jobs of some hours each, in turn by everybody; the last ones run on.
    span, length = 31.0 * DAY, 4.0 * HOUR
    count = int(span / length * running)
    starts = np.asarray(BEGIN + np.arange(count) * (span / count), np.float64)
    entities = np.array([rng.choice(places) for _ in range(count)], np.int64)
    cores = np.array([float(rng.choice((1, 1, 1, 8))) for _ in range(count)])
    ends = np.asarray(starts + length, np.float64)
    ledger.charge([UseIntervals(entities, starts, ends, cores)], BEGIN + span)
    ledger.forget_old()
    latest = slice(count - running, count)
    still = UseIntervals(entities[latest], starts[latest], np.full(running, np.inf), cores[latest])
    priorities: Priorities[int] = Priorities(shares, frozenset())
    held = {}
    for queue in range(queues):
        owner, group = people[queue % owners]
        jobs = rng.randrange(1, 500)
        priorities.set(queue, owner, group, jobs * rng.randrange(1, 10), jobs)
        held[queue] = priorities.of(queue, owner, group)
    instances = {"groups": HistoryInstance(form=form, slices=SLICES)}
    instances |= {f"of{group}": HistoryInstance(group=group, form=form, slices=SLICES) for group in shares}
    return Pool(ledger, priorities, shares, frozenset(people), instances, still, {}, held)


def rules(pool: Pool) -> Iterator[tuple[str, float]]:
    """Run one correction; yield each part with its seconds."""
    begun = time.perf_counter()
    pool.ledger.charge([pool.running], pool.ledger.as_of + PERIOD)
    pool.ledger.forget_old()
    yield "charge", time.perf_counter() - begun

    begun = time.perf_counter()
    found = drawn(pool)
    yield "correct", time.perf_counter() - begun

    begun = time.perf_counter()
    pool.memory = found.memory
    pool.priorities.correct(found.groups, found.owners)
    news = dict(pool.priorities.recompute())
    pool.held.update(news)
    pool.settled = len(news)
    yield "settle", time.perf_counter() - begun


def drawn(pool: Pool) -> Corrections:
    facts = Facts(
        shares=pool.shares,
        owners=pool.owners,
        admits=lambda owner, group: True,
        use=pool.ledger.over,
        decayed_use=pool.ledger.decayed,
        elapsed=PERIOD,
    )
    return correct(["WMSHistory"], {"WMSHistory": pool.instances}, facts, pool.memory)
