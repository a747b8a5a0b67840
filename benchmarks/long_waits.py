"""Nodes that were free while jobs of a public trace waited.

MetaCentrum's trace has the nodes of each job. In the middle of each long wait this counts the nodes with
enough free cores and memory, and those of them on which jobs of the same queue started within a day.
"""

from __future__ import annotations

import argparse
from collections import Counter, defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from benchmarks.figure import Figure
from benchmarks.public_waits import CES, DAY, TRACE
from benchmarks.shapes import Absent

SUMMARY = "% of the long waits of MetaCentrum's jobs for which no node had enough free cores and memory"

LONG = 600.0
"""Seconds of a long wait."""
LARGE = 12
"""A node on which more cores were in use at once is of the larger kind."""


class TraceRun(NamedTuple):
    """One job of the trace, as it ran."""

    submit: float
    start: float
    end: float
    memory: float
    """Bytes of the whole job."""
    user: str
    queue: str
    cores: Counter[str]
    """The cores by node."""


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--trace", type=Path, default=TRACE)
    parser.add_argument("--begin", type=float, default=66.0, help="day of the first submission that counts")
    parser.add_argument("--days", type=float, default=6.0)


def run(asked: argparse.Namespace) -> Figure:
    if not asked.trace.exists():
        raise Absent(f"there is no trace {asked.trace}")
    runs = read_runs(asked.trace)
    first = min(job.submit for job in runs)
    jobs = [job for job in runs if asked.begin <= (job.submit - first) / DAY < asked.begin + asked.days]
    long = [job for job in jobs if job.start - job.submit > LONG]
    sizes = _node_sizes(runs)
    causes = Counter(_cause(job, runs, sizes) for job in long)
    without_room = round(100 * causes["no node had enough free cores and memory"] / max(1, len(long)), 1)
    notes = {"jobs": f"{len(jobs):,}; {len(long):,} of them waited for more than ten minutes"}
    notes |= {cause: f"{count:,} jobs" for cause, count in causes.most_common()}
    notes["nodes without a job in the whole trace"] = str(sum(ce.nodes[0].count for ce in CES) - len(sizes))
    return Figure("long_waits", without_room, "%", {}, 0.0, [without_room], notes)


def read_runs(trace: Path) -> list[TraceRun]:
    """The jobs that ran. The nodes and the queue follow the columns of the format: {a,a,b} queue."""
    runs = []
    for line in trace.read_text(encoding="utf-8").splitlines():
        fields = line.split()
        if line.startswith(";") or len(fields) < 20:
            continue
        submit, wait, seconds = map(float, fields[1:4])
        if seconds > 0 and wait >= 0:
            cores = Counter(fields[18].strip("{}").split(","))
            start = submit + wait
            runs.append(
                TraceRun(submit, start, start + seconds, float(fields[9]), fields[11], fields[19], cores)
            )
    return runs


def _node_sizes(runs: Sequence[TraceRun]) -> dict[str, tuple[int, float]]:
    """(cores, bytes of memory) of each node with a job: its kind follows from the most cores in use."""
    changes: dict[str, list[tuple[float, int]]] = defaultdict(list)
    for job in runs:
        for node, cores in job.cores.items():
            changes[node] += [(job.start, cores), (job.end, -cores)]
    sizes = {}
    for node, steps in changes.items():
        used = most = 0
        for _, change in sorted(steps):
            used += change
            most = max(most, used)
        kind = CES[0 if most > LARGE else 1].nodes[0]
        sizes[node] = (kind.processors, kind.memory * 1024.0**2)
    return sizes


def _cause(job: TraceRun, runs: Sequence[TraceRun], sizes: dict[str, tuple[int, float]]) -> str:
    """The first condition that held in the middle of the wait."""
    instant = (job.submit + job.start) / 2
    cores: Counter[str] = Counter()
    memory: Counter[str] = Counter()
    for other in runs:
        if other.start <= instant < other.end:
            for node, part in other.cores.items():
                cores[node] += part
                memory[node] += round(max(0.0, other.memory) * part / other.cores.total())
    need = max(job.cores.values())
    bytes_needed = max(0.0, job.memory) * need / job.cores.total()
    free = {
        node
        for node, (most, room) in sizes.items()
        if most - cores[node] >= need and room - memory[node] >= bytes_needed
    }
    if not free:
        return "no node had enough free cores and memory"
    of_queue = [other for other in runs if other.queue == job.queue]
    if not any(abs(other.start - instant) < DAY and free & other.cores.keys() for other in of_queue):
        return "such nodes were free, but no job of the queue started on one within a day"
    if any(
        other.user != job.user and other.submit > job.submit and job.submit < other.start < job.start - 1
        for other in of_queue
    ):
        return "a later job of another user of the queue started before"
    return "nodes of the queue were free, but no later job of its other users started"
