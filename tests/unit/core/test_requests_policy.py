"""The table `requests` of the policy: bands of priorities, fixed thresholds, and contradictions with their lines."""

from __future__ import annotations

import pytest

from pilotage.core.errors import InvalidInput
from pilotage.core.policy import parse, warnings
from pilotage.core.policy.requests import Requests

HEAD = """\
[groups.g]
properties = ["ProductionManagement", "AGENT"]
[users.u]
groups = ["g"]
[sites.here]
[sites.there]
"""


@pytest.mark.parametrize(
    ("priority", "user_priority"),
    [(0, 1), (8000, 1), (9999, 1), (10_000, 2), (499_999, 9), (500_000, 10), (999_999, 10)],
)
def test_bands_map_the_priority_of_a_request(priority: int, user_priority: int) -> None:
    assert Requests().user_priority(priority) == user_priority


def test_own_bands_and_the_limit_of_an_agent() -> None:
    policy = parse(HEAD + "[requests]\npriority_bands = [5]\nmax_jobs_per_owner = 10\n")
    assert [policy.requests.user_priority(number) for number in (4, 5, 999_999)] == [1, 2, 2]
    assert policy.requests.owner_limit == 7
    assert policy.properties("u", "g") == {"PRODUCTION_MANAGEMENT", "AGENT"}


def test_a_group_serves_the_teams_that_it_names_and_only_with_the_right() -> None:
    agents = 'groups = ["g"]\n[groups.a]\nproperties = ["AGENT"]\nteams = ["east", "west"]\n'
    policy = parse(HEAD.replace('groups = ["g"]\n', agents) + '[groups.b]\nteams = ["*"]\n')
    assert policy.teams("a") == {"east", "west"}
    assert [policy.teams(group) for group in ("g", "b", "none")] == [frozenset()] * 3
    [warning] = [text for text in warnings(policy) if "without `teams`" in text]
    assert warning.startswith("groups.g has the property AGENT")


def test_a_threshold_of_the_site_stands_above_one_of_all_sites() -> None:
    requests = parse(
        HEAD
        + '[[requests.thresholds]]\ntype = "Merge"\npending = 5\nrunning = 7\n'
        + '[[requests.thresholds]]\nsite = "here"\ntype = "Merge"\npending = 2\n'
        + '[[requests.thresholds]]\nsite = "there"\nrunning = 0\n'
    ).requests
    here, there = requests.threshold("here", "Merge"), requests.threshold("there", "Merge")
    assert (here.pending, here.running) == (2, 7)
    assert (there.pending, there.running) == (5, 7)
    assert requests.threshold("there", "").running == 0
    assert requests.threshold("here", "").pending is None


@pytest.mark.parametrize(
    ("text", "reason", "line"),
    [
        ("[requests]\npriority_bands = [5, 5]", "increasing", 8),
        ("[requests]\npriority_bands = [1, 2, 3, 4, 5, 6, 7, 8, 9, 10]", "limit is 9", 8),
        ("[requests]\nagent_lease = 10", "at least three times agent_period", 8),
        ("[requests]\nqueue_dept = 1", "unknown key queue_dept", 8),
        ('[[requests.thresholds]]\nsite = "nowhere"\npending = 1', "no site nowhere", 8),
        ('[[requests.thresholds]]\nsite = "here"', "needs pending or running", 7),
        (
            "[[requests.thresholds]]\npending = 1\n[[requests.thresholds]]\nrunning = 1",
            "two thresholds",
            9,
        ),
    ],
)
def test_contradictions_have_their_line(text: str, reason: str, line: int) -> None:
    with pytest.raises(InvalidInput, match=reason) as refused:
        parse(HEAD + text + "\n")
    assert refused.value.line == line
