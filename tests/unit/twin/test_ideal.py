"""The ideal division of cores, on cases that are small enough to compute by hand."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pilotage.core.policy import parse
from pilotage.twin.ideal import EVERYBODY, ideal_use
from pilotage.twin.result import JobRun, JobRuns, TwinOutcome
from tests.unit.twin.invented_runs import policy_of

POLICY = policy_of({"a": 3.0, "b": 1.0})


def jobs_of(*jobs: tuple[str, float, float, int]) -> JobRuns:
    """Jobs by owner, submission, run time and cores; the owner's first letter is the group."""
    runs = JobRuns()
    for number, (owner, submit, run, cores) in enumerate(jobs):
        outcome = TwinOutcome.WAITING
        runs.add(JobRun(number, owner, owner[0], cores, submit, None, None, 0, outcome, 0.0, run))
    return runs


def used(jobs: JobRuns, cores: float, steps: int = 10, length: float = 10.0) -> dict[str, list[float]]:
    """The core-seconds of each owner, step by step."""
    times = np.arange(steps + 1) * length
    ideal = ideal_use(jobs, times, np.full(steps, cores * length), POLICY)
    names = [jobs.owners.names[owner] for _, owner in ideal.parties]
    return {name: ideal.core_seconds[:, place].tolist() for place, name in enumerate(names)}


def test_shares_divide_the_cores_while_both_have_work() -> None:
    parts = used(jobs_of(*[("a1", 0.0, 1000.0, 1)] * 8, *[("b1", 0.0, 1000.0, 1)] * 8), 4)
    assert parts == {"a1": [30.0] * 10, "b1": [10.0] * 10}


def test_a_group_gets_no_more_than_its_jobs_can_use() -> None:
    """One job of one core cannot use three cores, and one that is over uses none."""
    parts = used(jobs_of(("a1", 0.0, 35.0, 1), *[("b1", 0.0, 1000.0, 1)] * 8), 4, steps=5)
    assert parts["a1"] == [10.0, 10.0, 10.0, 5.0, 0.0]
    assert parts["b1"] == [30.0, 30.0, 30.0, 35.0, 40.0]


def test_a_group_that_comes_later_gets_its_share_at_once() -> None:
    parts = used(jobs_of(*[("a1", 25.0, 1000.0, 1)] * 8, *[("b1", 0.0, 1000.0, 1)] * 8), 4, steps=4)
    assert parts["a1"] == [0.0, 0.0, 30.0, 30.0]


def test_many_short_jobs_follow_each_other_on_a_core() -> None:
    parts = used(jobs_of(*[("a1", 0.0, 2.0, 1)] * 30, *[("b1", 0.0, 1000.0, 1)] * 8), 4, steps=3)
    assert parts["a1"] == [30.0, 30.0, 0.0]


def test_owners_of_a_group_have_equal_parts() -> None:
    jobs = jobs_of(*[("a1", 0.0, 1000.0, 1)] * 8, *[("a2", 0.0, 1000.0, 1)] * 2, ("a3", 0.0, 1000.0, 1))
    parts = used(jobs, 6, steps=1)
    assert parts == {"a1": [30.0], "a2": [20.0], "a3": [10.0]}


def test_a_group_that_shares_its_share_is_one_party() -> None:
    policy = parse(
        "[groups.a]\nproperties = ['NORMAL_USER', 'ADMINISTRATOR', 'JOB_SHARING']\n[users.a1]\ngroups = ['a']\n"
        "[users.a2]\ngroups = ['a']"
    )
    jobs = jobs_of(("a1", 0.0, 50.0, 1), ("a2", 0.0, 50.0, 1))
    ideal = ideal_use(jobs, np.array([0.0, 10.0]), np.array([20.0]), policy)
    assert ideal.parties == [(0, EVERYBODY)]
    assert ideal.of_group(0).tolist() == [20.0]


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["a1", "a2", "b1"]), st.floats(0, 90), st.floats(1, 200), st.integers(1, 4)
        ),
        min_size=1,
        max_size=20,
    ),
    st.floats(0.5, 20),
)
def test_nobody_gets_more_than_there_is(
    given_jobs: list[tuple[str, float, float, int]], cores: float
) -> None:
    parts = used(jobs_of(*given_jobs), cores)
    steps = np.array(list(parts.values()))
    assert np.all(steps >= 0)
    assert np.all(steps.sum(axis=0) <= cores * 10 + 1e-6)
    for owner, served in parts.items():
        assert sum(served) <= sum(run * size for who, _, run, size in given_jobs if who == owner) + 1e-6


def test_a_run_without_jobs_has_no_parties() -> None:
    ideal = ideal_use(JobRuns(), np.array([0.0, 10.0]), np.array([0.0]), POLICY)
    assert (ideal.parties, ideal.core_seconds.shape) == ([], (1, 0))
    assert pytest.approx(0.0) == ideal.of_group(0).sum()
