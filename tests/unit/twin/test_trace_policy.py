"""The policy of a trace that comes without one."""

from __future__ import annotations

import pytest

from pilotage.core.errors import InvalidInput
from pilotage.core.policy import parse
from pilotage.twin.ces import TwinCe, TwinNodes
from pilotage.twin.trace_policy import policy_of_trace
from pilotage.twin.workload import TraceJobs
from tests.unit.twin.swf_text import job

JOBS = TraceJobs(
    [
        job(1, owner="user1", group="group1"),
        job(2, owner="user2", group="group1"),
        job(3, owner="user2", group="group2", processors=12),
    ]
)
CES = (TwinCe("big", (TwinNodes(10, 8, 1000), TwinNodes(4, 16, 2000), TwinNodes(1, 32)), wall=7200.0),)


def test_all_jobs_are_admitted_with_equal_shares() -> None:
    policy = parse(policy_of_trace(JOBS, CES, {}))
    assert all(policy.admits(one.owner, one.group) for one in JOBS)
    assert policy.shares() == {"group1": 1000.0, "group2": 1000.0}
    assert policy.matching.rule == "proportional"
    assert len(policy.correction.between("")) == len(policy.correction.between("group1")) == 1
    assert not policy.correction.between("group2")  # one owner


def test_shares_are_given_by_group() -> None:
    assert parse(policy_of_trace(JOBS, CES, {"group2": 250.5})).shares()["group2"] == 250.5
    with pytest.raises(InvalidInput, match="the trace has no group atlas"):
        policy_of_trace(JOBS, CES, {"atlas": 1.0})


def test_pilots_take_whole_nodes_with_room_for_the_largest_job() -> None:
    ce = parse(policy_of_trace(JOBS, CES, {})).ces["big"]
    assert (ce.pilot_processors, ce.pilot_memory, ce.wall) == (16, 2000, 7200.0)
    assert ce.max_running == 4 + 2
    assert ce.serves_everybody
    assert not ce.binds_pilots
