"""The waits that a public trace has, beside those of the twin on the same jobs and nodes.

MetaCentrum's trace of 2013 tells how long each job waited. Its scheduler had queues, reservations and backfill of its
own; the twin runs the same jobs with Pilotage's rules. The first days of the part only fill the nodes.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np

from benchmarks.distributions import draw_waits, kolmogorov, told_quantiles
from benchmarks.figure import Figure
from benchmarks.shapes import Absent
from pilotage.core.policy import parse
from pilotage.twin.ces import TwinCe, TwinNodes
from pilotage.twin.columns import Array
from pilotage.twin.plan import TwinPlan
from pilotage.twin.preparation import prepare_jobs
from pilotage.twin.run import run_twin
from pilotage.twin.trace_policy import policy_of_trace
from pilotage.twin.workload.swf import MemoryUnit, read_swf

SUMMARY = "Kolmogorov distance of the real waits of MetaCentrum's jobs and of the twin's"

TRACE = Path(__file__).resolve().parents[1].parent / "shared" / "traces" / "metacentrum-wagap-2013.swf"
DAY = 86400.0
WALL = 60 * DAY
"""Seconds of a pilot: the longest jobs ask for weeks."""
CES = (
    TwinCe("zewura", (TwinNodes(20, 80, 517_017),), wall=WALL, start_delay=5.0),
    TwinCe("zegox", (TwinNodes(48, 12, 91_832),), wall=WALL, start_delay=5.0),
)
"""The nodes of the trace, as the file beside it tells."""
SIZES = ((1, 1), (2, 12), (13, 1000))
"""The fewest and the most cores of the jobs that are compared."""


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--trace", type=Path, default=TRACE)
    parser.add_argument("--begin", type=float, default=62.0, help="day of the trace at which the part begins")
    parser.add_argument("--fill", type=float, default=4.0, help="days whose jobs are not compared")
    parser.add_argument("--days", type=float, default=10.0, help="length of the part")
    parser.add_argument("--more", type=float, default=3.0, help="days of the run after the last submission")
    parser.add_argument("--picture", type=Path, help="file for the picture (SVG)")


def run(asked: argparse.Namespace) -> Figure:
    if not asked.trace.exists():
        raise Absent(f"there is no trace {asked.trace}")
    trace, waits = read_swf(asked.trace, MemoryUnit.BYTES).jobs, _real_waits(asked.trace)
    days = trace.rows["submit"] / DAY
    part = trace.where((days >= asked.begin) & (days < asked.begin + asked.days))
    begin = float(part.rows["submit"].min())
    part.rows["submit"] -= begin
    text = policy_of_trace(part, CES, {})
    prepared = prepare_jobs(part, {"": parse(text)}, CES, None)
    until = (asked.days + asked.more) * DAY
    result = run_twin(TwinPlan(prepared.jobs, parse(text), text, CES, 1, until), lambda progress: None)
    rows = result.jobs.rows[result.jobs.rows["submit"] >= asked.fill * DAY]
    real = np.array([waits[number] for number in rows["number"].tolist()])
    open_jobs = np.isnan(rows["start"])
    twin = np.where(open_jobs, result.until, rows["start"]) - rows["submit"]
    notes = {
        "part": f"days {asked.begin:g} to {asked.begin + asked.days:g}, {len(part):,} jobs;"
        f" {len(rows):,} of them are compared, after {asked.fill:g} days that fill the nodes",
        "left out": "; ".join(prepared.notes) or "no job",
        "waits, real": told_quantiles(real.tolist()),
        "waits, twin": told_quantiles(twin.tolist()),
        **{_cores(least, most): _of_size(rows, real, twin, least, most) for least, most in SIZES},
        "not started": f"{np.count_nonzero(open_jobs):,} jobs of the twin, which count with their wait until the end",
        "processor time": f"{result.cpu_seconds:.0f} s",
    }
    if asked.picture is not None:
        curves = {"MetaCentrum": real.tolist(), "twin": twin.tolist()}
        draw_waits(
            "Waits at MetaCentrum in 2013, and the twin's", f"{len(rows):,} jobs", curves, asked.picture
        )
    distance = round(kolmogorov(real.tolist(), twin.tolist()), 3)
    return Figure("public_waits", distance, "", {}, 0.0, [distance], notes)


def _real_waits(trace: Path) -> dict[int, float]:
    """The third field of each line, by the job's number."""
    waits: dict[int, float] = {}
    for line in trace.read_text(encoding="utf-8").splitlines():
        fields = line.split(None, 3)
        if len(fields) == 4 and not line.startswith(";"):
            waits.setdefault(int(fields[0]), max(0.0, float(fields[2])))
    return waits


def _of_size(rows: Array, real: Array, twin: Array, least: int, most: int) -> str:
    chosen = (rows["processors"] >= least) & (rows["processors"] <= most)
    if not chosen.any():
        return "no job"
    ours, theirs = twin[chosen].tolist(), real[chosen].tolist()
    return (
        f"{len(ours):,} jobs, distance {kolmogorov(theirs, ours):.2f}; real {told_quantiles(theirs)};"
        f" twin {told_quantiles(ours)}"
    )


def _cores(least: int, most: int) -> str:
    return f"jobs of {least} core" if least == most else f"jobs of {least} to {most} cores"
