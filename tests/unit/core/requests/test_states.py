"""The states of requests: WMCore's moves, the way of work that ends fast, and the facts that a state lets change."""

from __future__ import annotations

import re

import pytest

from pilotage.core.errors import Conflict
from pilotage.core.requests.states import (
    ACTIVE,
    EDITABLE,
    ENDED,
    REQUEST_STATES,
    UNFINISHED,
    RequestState,
    check_editable,
    states_between,
)

WMCORE = """\
new→{assignment-approved, rejected}; assignment-approved→{assigned, rejected};
assigned→{staging, aborted}; staging→{staged, aborted}; staged→{acquired, aborted, failed};
acquired→{running-open, aborted, failed}; running-open→{running-closed, force-complete, aborted};
running-closed→{force-complete, completed, aborted}; force-complete→{completed}; failed→{rejected, assigned};
completed→{closed-out, rejected}; closed-out→{announced, rejected}; announced→{rejected, normal-archived};
normal-archived→{rejected-archived}; aborted→{aborted-completed}; aborted-completed→{aborted-archived};
rejected→{rejected-archived}"""

MORE = {
    (RequestState.ASSIGNED, RequestState.ACQUIRED): "staging is optional",
    (RequestState.ASSIGNED, RequestState.FAILED): "intake finds without staging that there is no work",
}


def test_the_moves_are_those_of_wmcore_and_two_more() -> None:
    theirs = {
        (RequestState(old), RequestState(new))
        for old, following in re.findall(r"([a-z-]+)→\{([^}]*)\}", WMCORE)
        for new in following.split(", ")
    }
    ours = {(old, new) for old, row in REQUEST_STATES.rows.items() for new in row.next}
    assert ours - theirs == set(MORE)
    assert theirs <= ours


@pytest.mark.parametrize(
    ("old", "new", "way"),
    [
        ("assigned", "acquired", ["acquired"]),
        ("staged", "acquired", ["acquired"]),
        ("acquired", "completed", ["running-open", "running-closed", "completed"]),
        ("running-closed", "running-open", []),
        ("completed", "completed", []),
        ("force-complete", "completed", ["completed"]),
        ("force-complete", "running-closed", []),
        ("aborted", "completed", []),
        ("aborted", "aborted-completed", ["aborted-completed"]),
        ("new", "acquired", []),
    ],
)
def test_work_walks_through_all_states_and_never_back(old: str, new: str, way: list[str]) -> None:
    states = states_between(RequestState(old), RequestState(new))
    assert list(states) == way
    for before, after in zip((RequestState(old), *states), states, strict=False):
        assert REQUEST_STATES.allows(before, after)


def test_a_fact_is_changed_only_where_its_state_allows_it() -> None:
    check_editable("priority", RequestState.RUNNING_CLOSED)
    check_editable("team", RequestState.ASSIGNMENT_APPROVED)
    for fact, states in EDITABLE.items():
        without_work = {RequestState.FAILED} if fact == "splitting and resources" else set()
        assert states <= {*UNFINISHED, *without_work} - {RequestState.ABORTED}, fact
        still_merges = fact in ("priority", "sites", "team")
        assert (RequestState.FORCE_COMPLETE in states) == still_merges
    with pytest.raises(Conflict, match="team of a request in state completed") as refused:
        check_editable("team", RequestState.COMPLETED)
    assert refused.value.hint.startswith("it can be in: new, assignment-approved, assigned")


def test_every_state_is_unfinished_or_ended() -> None:
    assert set(ACTIVE) < set(UNFINISHED)
    assert set(RequestState) - set(UNFINISHED) == ENDED
