"""A trace through the twin: submissions, matches, pilots and ends go through the services and the store."""

from __future__ import annotations

import argparse
import multiprocessing
import resource
from collections.abc import Mapping
from pathlib import Path

from benchmarks.figure import Figure, figure, told
from benchmarks.shapes import Absent
from pilotage.core.policy import parse
from pilotage.twin.ces_file import one_ce
from pilotage.twin.plan import TwinPlan
from pilotage.twin.preparation import prepare_jobs
from pilotage.twin.run import run_twin
from pilotage.twin.trace_policy import policy_of_trace
from pilotage.twin.workload.swf import MemoryUnit, read_swf

SUMMARY = "jobs of a trace that one core simulates in a second, and twice as many in how much more time"

TRACE = Path(__file__).resolve().parents[1].parent / "shared" / "traces" / "LCG-2005-1.swf.gz"
AIM = 188_041 / 120
"""Jobs a second: the whole of LCG-2005 in two minutes."""


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--trace", type=Path, default=TRACE, help="in the Standard Workload Format")
    parser.add_argument("--jobs", type=int, default=4000, help="the first jobs of the trace")
    parser.add_argument("--cores", type=int, default=2000)


def run(asked: argparse.Namespace) -> Figure:
    if not asked.trace.exists():
        raise Absent(f"there is no trace {asked.trace}")
    half = _in_own_process(asked, asked.jobs // 2)
    whole = _in_own_process(asked, asked.jobs)
    notes = {
        "jobs": f"{whole['jobs']:,}, over {whole['virtual'] / 86_400:.1f} days",
        "processor time": f"{whole['cpu']:.1f} s, {whole['cpu'] / whole['jobs'] * 1e6:.0f} µs for each job",
        "faster than real": f"{whole['virtual'] / whole['cpu']:,.0f} times",
        "messages of pilots": f"{whole['messages']:,}",
        "memory": f"{whole['memory'] / 1024:.0f} MB",
    }
    notes["twice the jobs"] = f"{whole['cpu'] / half['cpu']:.2f} times the processor time"
    notes["aim"] = f"{told(AIM)} jobs a second, memory below 1 GB, twice the jobs in twice the time"
    peers = {"aim": AIM, "half of the jobs": half["jobs"] / half["cpu"]}
    return figure("twin", "jobs/s", [whole["jobs"] / whole["cpu"]], peers, notes, against="aim")


def _in_own_process(asked: argparse.Namespace, jobs: int) -> Mapping[str, float]:
    """The memory of a process only grows, so each run has its own."""
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(_simulate, (asked.trace, jobs, asked.cores))


def _simulate(trace: Path, count: int, cores: int) -> Mapping[str, float]:
    jobs = read_swf(trace, MemoryUnit.NONE).jobs[:count]
    ces = one_ce(cores, int(jobs.rows["processors"].max()))
    text = policy_of_trace(jobs, ces, {})
    prepared = prepare_jobs(jobs, {"": parse(text)}, ces, None)
    result = run_twin(TwinPlan(prepared.jobs, parse(text), text, ces, 1), lambda progress: None)
    return {
        "jobs": len(prepared.jobs),
        "cpu": result.cpu_seconds,
        "virtual": result.until,
        "messages": result.counts.exchanges,
        "memory": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss,
    }
