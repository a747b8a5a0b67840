from __future__ import annotations

import pickle

from pilotage.twin.workload import TraceJobs
from tests.unit.twin.swf_text import job

JOBS = [
    job(number, submit=float(number), owner=f"user{number % 7}", group=f"group{number % 3}")
    for number in range(3000)
]


def test_jobs_are_a_sequence() -> None:
    jobs = TraceJobs(JOBS)
    assert (len(jobs), jobs[5], jobs[-1]) == (3000, JOBS[5], JOBS[-1])
    assert list(jobs[10:20]) == JOBS[10:20]
    assert list(jobs) == JOBS


def test_jobs_go_to_another_process() -> None:
    assert list(pickle.loads(pickle.dumps(TraceJobs(JOBS)))) == JOBS


def test_chosen_jobs_keep_their_names() -> None:
    jobs = TraceJobs(JOBS)
    assert list(jobs.where(jobs.rows["submit"] < 4)) == JOBS[:4]


def test_memberships_are_those_of_the_jobs() -> None:
    jobs = TraceJobs(
        [job(1, owner="b", group="y"), job(2, owner="b", group="x"), job(3, owner="b", group="y")]
    )
    assert list(jobs.memberships()) == [("b", "x"), ("b", "y")]
    assert list(TraceJobs().memberships()) == []
