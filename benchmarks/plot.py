"""The cost of a match by the number of waiting jobs and of task queues: a picture and its data."""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.asked import opened
from benchmarks.figure import Figure
from benchmarks.filled import fill, store_at
from benchmarks.shapes import synthetic

QUEUES_OF_JOBS, JOBS_OF_QUEUES = 1_000, 1_000_000
"""Number of queues while the jobs vary, and number of jobs while the queues vary."""
SUMMARY = "what a match costs against jobs and queues: a picture in the docs, and its data"

JOBS = (10_000, 30_000, 100_000, 300_000, 1_000_000, 3_000_000, 10_000_000)
QUEUES = (100, 300, 1_000, 3_000, 10_000, 30_000, 100_000)
PART = 0.4
"""Maximum part of the waiting jobs to match, so that their number stays about the same."""
CLIENTS = 64


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--most-jobs", type=int, default=JOBS[-1])
    parser.add_argument("--most-queues", type=int, default=QUEUES[-1])
    parser.add_argument("--jobs", type=int, default=JOBS_OF_QUEUES, help="while the number of queues changes")
    parser.add_argument("--store", choices=("sqlite", "postgres"), default="sqlite")
    parser.add_argument("--seconds", type=float, default=4.0, help="of each point")
    parser.add_argument("--runs", type=int, default=3, help="of each point; the median counts")
    parser.add_argument(
        "--file", type=Path, default=Path("docs/reference/match-cost.svg"), help="the picture (.svg, .png)"
    )
    parser.add_argument("--point", help=argparse.SUPPRESS)


def run(asked: argparse.Namespace) -> Figure:
    if asked.point:
        jobs, queues = (int(number) for number in asked.point.split(","))
        wall, cpu = _point(jobs, queues, asked.store, asked.seconds)
        return Figure("plot", wall, "µs", {"processor": cpu}, 0.0)
    of_jobs = [_measured(one, QUEUES_OF_JOBS, asked) for one in JOBS if one <= max(asked.most_jobs, JOBS[0])]
    of_queues = [
        _measured(asked.jobs, one, asked) for one in QUEUES if one <= min(asked.most_queues, asked.jobs)
    ]
    data = {"store": asked.store, "clients": CLIENTS, "against jobs": of_jobs, "against queues": of_queues}
    asked.file.with_suffix(".json").write_text(json.dumps(data, indent=1) + "\n")
    draw(data, asked.file)
    costs = [point["wall"] for point in of_jobs]
    notes = {
        "against jobs": ", ".join(f"{p['jobs']:,}: {p['wall']:.0f} µs" for p in of_jobs),
        "against queues": ", ".join(f"{p['queues']:,}: {p['wall']:.0f} µs" for p in of_queues),
        "picture": f"{asked.file}, its data in {asked.file.with_suffix('.json').name}",
    }
    ratio = round(costs[-1] / costs[0], 3)
    return Figure("plot", costs[-1], "µs of a match", {"with the fewest jobs": costs[0]}, ratio, costs, notes)


def _measured(jobs: int, queues: int, asked: argparse.Namespace) -> dict[str, Any]:
    """Each run in a process of its own, so that none has the memory of another."""
    command = [sys.executable, "-m", "benchmarks", "plot", "--json", "--point", f"{jobs},{queues}"]
    command += ["--store", asked.store, "--seconds", str(asked.seconds)]
    found = []
    for _ in range(asked.runs):
        line = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
        found.append(json.loads(line.strip().rpartition("\n")[2]))
    wall = statistics.median(one["ours"] for one in found)
    cpu = statistics.median(one["peers"]["processor"] for one in found)
    print(f"{jobs:,} jobs in {queues:,} queues: {wall:.1f} µs, {cpu:.1f} of the processor", file=sys.stderr)
    return {"jobs": jobs, "queues": queues, "wall": wall, "processor": cpu}


def _point(jobs: int, queues: int, kind: str, seconds: float) -> tuple[float, float]:
    """Microseconds of one match: by the clock, and of the processor."""
    shape = synthetic(jobs, queues)
    tokens = [f"token {number}" for number in range(CLIENTS)]
    with (
        tempfile.TemporaryDirectory(prefix="bench-plot-") as folder,
        store_at(Path(folder), kind) as store,
    ):
        fill(store, shape, "dirac", tokens)
        with opened(store, shape, tokens) as site:
            found = site.measured(1, seconds, most=int(jobs * PART))
    return round(found.seconds / found.matched * 1e6, 1), round(found.cpu / found.matched * 1e6, 1)


def draw(data: dict[str, Any], file: Path) -> None:
    import matplotlib as mpl

    mpl.use("Agg")
    # No dates and names of its own in the file: the same data make the same picture.
    mpl.rcParams["svg.hashsalt"] = "pilotage"
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(1, 2, figsize=(9, 3.6), sharey=True, layout="constrained")
    fixed = {
        "jobs": f"{QUEUES_OF_JOBS:,} task queues",
        "queues": f"{data['against queues'][0]['jobs']:,} jobs",
    }
    names = {"jobs": "waiting jobs", "queues": "task queues"}
    for axis, what in zip(axes, ("jobs", "queues"), strict=True):
        points: Sequence[dict[str, float]] = data[f"against {what}"]
        numbers = [point[what] for point in points]
        axis.plot(numbers, [p["wall"] for p in points], "o-", label="by the clock, durable")
        axis.plot(numbers, [p["processor"] for p in points], "s--", label="processor time")
        axis.set(xscale="log", xlabel=names[what], title=fixed[what])
        axis.grid(visible=True, alpha=0.3)
    # Of both: they share it, and the highest point may be in either.
    axes[0].set_ylim(0, None)
    axes[0].set_ylabel("µs of one match")
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=2, frameon=False)
    figure.savefig(file, metadata={"Date": None} if file.suffix == ".svg" else None, dpi=130)
    plt.close(figure)
