"""The comparison of both demands on a logged workload: the reader of logs, and simulations worked out by hand."""

from __future__ import annotations

import argparse
import gzip
from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Any

import pytest
from benchmarks import demand
from benchmarks.pilot_simulation import Outcome, SimulatedCe, simulate
from benchmarks.shapes import Absent
from benchmarks.workload_log import LoggedJob, read_window

from pilotage.core.policy.director import Demand, Director

DEMANDS: tuple[Demand, ...] = ("dirac", "matched")
IDLE = 120.0


def row(number: int, submitted: float, run: float = 10, processors: int = 1, requested: float = 400) -> str:
    return f"{number} {submitted} -1 {run} {processors} -1 -1 -1 {requested} -1 -1 7 3 -1 -1 1 -1 -1"


def job(submitted: float = 0.0, run: float = 100.0, requested: float = 400.0, owner: str = "u1") -> LoggedJob:
    return LoggedJob(submitted, run, requested, owner, "g1")


def ce(name: str = "one", wait: float | None = 600.0, **numbers: Any) -> SimulatedCe:
    return SimulatedCe(name, wait, numbers.pop("max_waiting", 50), numbers.pop("max_running", 100), **numbers)


def ran(
    kind: Demand, jobs: Sequence[LoggedJob], ces: Sequence[SimulatedCe], seed: int = 1, **settings: Any
) -> Outcome:
    settings.setdefault("private_pilot_fraction", 0.0)
    return simulate(jobs, ces, Director(demand=kind, **settings), Random(seed))


def made_jobs(count: int, seed: int = 1) -> list[LoggedJob]:
    """Jobs of five owners that come at random within an hour."""
    rng = Random(seed)
    return [
        job(
            rng.uniform(0, 3600),
            rng.uniform(1, 3000),
            rng.choice((400, 4000, 40000)),
            f"u{rng.randrange(5)}",
        )
        for _ in range(count)
    ]


@pytest.mark.parametrize("name", ["log.swf", "log.swf.gz"])
def test_a_window_counts_from_its_first_job(tmp_path: Path, name: str) -> None:
    text = "; Version: 2.2\n\n" + "\n".join(row(number, 100 + number) for number in range(10)) + "\n"
    path = tmp_path / name
    path.write_bytes(gzip.compress(text.encode()) if name.endswith("gz") else text.encode())
    window = read_window(path, skip=3, most=4)
    assert [job.submitted for job in window.jobs] == [0, 1, 2, 3]
    assert window.jobs[0] == LoggedJob(0, 10, 400, "u7", "g3")
    assert window.left_out == 0


def test_odd_rows_are_left_out_and_counted(tmp_path: Path) -> None:
    path = tmp_path / "log.swf"
    rows = [
        row(1, 5, run=-8),
        row(2, -1),
        row(3, 5, processors=16),
        "4 5 nonsense",
        row(5, 5).replace("400", "many"),
        row(6, 9, run=0, requested=-1),
    ]
    path.write_text("\n".join(rows))
    window = read_window(path, skip=0, most=10)
    assert window.jobs == [LoggedJob(0, 0, 0, "u7", "g3")]
    assert window.left_out == 5


def test_an_absent_log_and_an_empty_window_are_skips_with_a_reason(tmp_path: Path) -> None:
    with pytest.raises(Absent, match="no-such-log"):
        read_window(tmp_path / "no-such-log.swf", 0, 10)
    (tmp_path / "short.swf").write_text(row(1, 5))
    with pytest.raises(Absent, match="after the first 1"):
        read_window(tmp_path / "short.swf", 1, 10)


def test_one_job_gets_one_pilot_with_demand_matched() -> None:
    outcome = ran("matched", [job(run=100)], [ce()])
    assert (outcome.submitted, outcome.cancelled, outcome.without_job) == (1, 0, 0)
    assert (outcome.payload, outcome.idle) == (100, pytest.approx(IDLE))
    assert outcome.most_waiting == 1


def test_one_job_gets_five_pilots_with_demand_dirac() -> None:
    """One queue alone has a mean of 200 · boost, so the cap int(1.2 · 1) + 4 decides."""
    outcome = ran("dirac", [job(run=100)], [ce()])
    assert (outcome.submitted, outcome.cancelled, outcome.without_job) == (5, 0, 4)
    assert (outcome.payload, outcome.idle) == (100, pytest.approx(5 * IDLE))
    assert outcome.most_waiting == 5


def test_a_job_of_a_later_owner_is_taken_by_an_idle_pilot_unless_it_is_private() -> None:
    """The second job comes while the first one's pilot is idle."""
    first = ran("matched", [job(run=100)], [ce()])
    later = first.waits[0] + 100 + IDLE / 2
    both = [job(run=100), job(later, 100, owner="u2")]
    generic = ran("matched", both, [ce()])
    assert (generic.submitted, generic.waits[1]) == (1, 0)
    private = ran("matched", both, [ce()], private_pilot_fraction=1.0)
    assert private.submitted == 2
    assert private.waits[1] > 0


def test_a_pilot_takes_no_job_that_its_wall_time_cannot_hold() -> None:
    """A wall of 1,000 s holds one payload of the bucket 500, and less than that after it."""
    jobs = [job(run=490), job(run=490)]
    assert ran("matched", jobs, [ce(wall=1000, max_running=1)]).submitted == 2
    assert ran("matched", jobs, [ce(wall=10000, max_running=1)]).submitted == 1


def test_pilots_that_nobody_needs_any_more_are_cancelled_with_demand_matched() -> None:
    """The first pilot that starts runs all the short jobs."""
    outcome = ran("matched", [job(run=1) for _ in range(20)], [ce(wait=6000)])
    assert outcome.submitted == 20
    assert outcome.cancelled > 10
    assert ran("dirac", [job(run=1) for _ in range(20)], [ce(wait=6000)]).cancelled == 0


@pytest.mark.parametrize("kind", DEMANDS)
def test_every_job_runs_once_within_the_caps(kind: Demand) -> None:
    jobs = made_jobs(80)
    ces = [ce("one", max_waiting=5, max_running=10), ce("two", 60.0, max_waiting=3, max_running=5)]
    outcome = ran(kind, jobs, ces, private_pilot_fraction=0.5)
    assert len(outcome.waits) == 80
    assert min(outcome.waits) >= 0
    buckets = {400: 500, 4000: 5000, 40000: 50000}
    assert outcome.payload == pytest.approx(sum(min(job.run, buckets[int(job.requested)]) for job in jobs))
    assert 0 < outcome.most_waiting <= 5 + 3
    assert (outcome.never_started, outcome.stuck) == (0, 0)
    # 15 cores bound the speed: the last job ends after all of them have done their part.
    assert (3600 + max(outcome.waits) + 3000) * 15 >= outcome.payload


@pytest.mark.parametrize("kind", DEMANDS)
def test_a_run_is_a_function_of_its_seed(kind: Demand) -> None:
    jobs, ces = made_jobs(20), [ce()]
    assert ran(kind, jobs, ces, seed=3) == ran(kind, jobs, ces, seed=3)
    assert ran(kind, jobs, ces, seed=3).waits != ran(kind, jobs, ces, seed=4).waits


def test_a_ce_that_never_starts_its_pilots_holds_jobs_with_demand_matched_only() -> None:
    ces = [ce("dead", None), ce("alive")]
    held = [ran("matched", [job()], ces, seed).never_started for seed in range(10)]
    assert set(held) == {0, 1}
    assert not any(ran("dirac", [job()], ces, seed).never_started for seed in range(10))


def test_the_figure_tells_both_demands_of_the_same_log(tmp_path: Path) -> None:
    path = tmp_path / "log.swf"
    path.write_text("\n".join(row(number, 10 * number, run=360) for number in range(30)))
    parser = argparse.ArgumentParser()
    demand.options(parser)
    arguments = ["--trace", str(path), "--skip", "10", "--jobs", "1", "--ces", "2", "--runs", "3"]
    figure = demand.run(parser.parse_args(arguments))
    assert figure.notes["facts"].startswith("log.swf, 1 jobs after 10 ")
    assert (figure.runs, figure.peers, figure.ratio) == ([5, 5, 5], {"matched": 1}, 5)
    assert figure.notes["core-hours of payload"] == "dirac 0.1, matched 0.1"
    assert figure.notes["jobs never started"] == "dirac 0, matched 0"
