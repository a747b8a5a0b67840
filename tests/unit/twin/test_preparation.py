"""Jobs that could never start, and policies that cannot serve a trace."""

from __future__ import annotations

import pytest

from pilotage.core.errors import InvalidInput
from pilotage.core.policy import parse
from pilotage.twin.ces import TwinCe, TwinNodes
from pilotage.twin.preparation import prepare_jobs
from pilotage.twin.trace_policy import policy_of_trace
from pilotage.twin.workload import TraceJobs
from tests.unit.twin.swf_text import job

CES = (TwinCe("grid", (TwinNodes(10, 8, 16000),), wall=86400.0),)
JOBS = TraceJobs([job(1), job(2, submit=50.0, owner="user2"), job(3, submit=100.0, group="group2")])
TEXT = policy_of_trace(JOBS, CES, {})


def prepared(
    jobs: TraceJobs, text: str = TEXT, until: float | None = None
) -> tuple[list[int], tuple[str, ...]]:
    found = prepare_jobs(jobs, {"p.toml": parse(text)}, CES, until)
    return [one.number for one in found.jobs], found.notes


def test_jobs_that_fit_are_kept() -> None:
    assert prepared(JOBS) == ([1, 2, 3], ())


@pytest.mark.parametrize(
    ("facts", "note"),
    [
        ({"processors": 9}, "1 of 2 jobs are larger than every pilot"),
        ({"memory": 16001}, "1 of 2 jobs are larger than every pilot"),
        ({"wall": 86400.0}, "1 of 2 jobs ask for more time than every pilot has"),
        # Its CPU bucket is the next one, 300,000 s.
        ({"cpu": 50001.0}, "1 of 2 jobs ask for more time than every pilot has"),
    ],
)
def test_jobs_that_cannot_start_are_counted(facts: dict[str, float], note: str) -> None:
    assert prepared(TraceJobs([job(1), job(2, **facts)])) == ([1], (note,))


def test_a_job_must_fit_the_pilots_of_each_policy() -> None:
    small = TEXT.replace("pilot_processors = 8", "pilot_processors = 2")
    jobs = TraceJobs([job(1), job(2, processors=4)])
    found = prepare_jobs(jobs, {"a": parse(TEXT), "b": parse(small)}, CES, None)
    assert [one.number for one in found.jobs] == [1]
    assert found.notes == ("1 of 2 jobs are larger than every pilot of b",)


def test_jobs_after_the_end_are_left_out() -> None:
    assert prepared(JOBS, until=60.0) == (
        [1, 2],
        ("1 of 3 jobs are submitted after the end of the run",),
    )


def test_jobs_that_no_pilot_lives_long_enough_for_are_told() -> None:
    numbers, notes = prepared(TraceJobs([job(1), job(2, run=10**8)]))
    assert numbers == [1, 2]
    assert notes == ("1 of 2 jobs run longer than every pilot lives: they are tried, and fail",)


def test_a_gap_of_years_is_a_wrong_line() -> None:
    jobs = TraceJobs([job(1), job(2, submit=90000.0), job(3, submit=1e10)])
    with pytest.raises(
        InvalidInput, match="after job 2 no job is submitted for 115,740 days, until job 3"
    ) as error:
        prepared(jobs)
    assert "--until 2d" in error.value.hint
    assert prepared(jobs, until=2 * 86400.0)[0] == [1, 2]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (TEXT.replace("ces.grid", "ces.other"), "p.toml has no CE grid, so its jobs could not run there"),
        (
            TEXT.replace('owners = "any"', 'owners = "home"'),
            "p.toml: CE grid serves only the owner of the home",
        ),
        (TEXT.replace("group2", "others"), "p.toml has no group group2, which the trace has"),
        (TEXT.replace("users.user2", "users.ada"), "p.toml does not admit user2 in group1"),
        (
            TEXT.replace("pilot_processors = 8", "pilot_processors = 16"),
            "none of the 3 jobs can start: 3 of 3 jobs are larger than every pilot",
        ),
    ],
)
def test_a_policy_that_cannot_serve_the_trace_is_one_sentence(text: str, message: str) -> None:
    with pytest.raises(InvalidInput) as error:
        prepared(JOBS, text)
    assert error.value.message == message
    assert error.value.hint


def test_a_run_must_have_jobs() -> None:
    later = TraceJobs([job(1, submit=100.0)])
    with pytest.raises(InvalidInput, match="no job is submitted before the end of the run"):
        prepared(later, until=50.0)
