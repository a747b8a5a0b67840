"""The tables of states: total, connected, and DIRAC's where DIRAC has the same move."""

from __future__ import annotations

import re
from enum import Enum
from pathlib import Path
from typing import Any

import pytest
from scripts.reference.tables import state_diagram

from pilotage.core.errors import IllegalMove
from pilotage.core.handover import Custody
from pilotage.core.jobs import states as jobs
from pilotage.core.jobs.states import JOB_STATES, JobState, custody_of
from pilotage.core.pilots import states as pilots
from pilotage.core.pilots.states import PILOT_STATES, PilotState
from pilotage.core.requests import states as states_of_requests
from pilotage.core.requests.states import REQUEST_STATES, RequestState
from pilotage.core.state_table import UNUSED, StateTable
from pilotage.core.workqueue.states import ELEMENT_JOB_STATES, ELEMENT_STATES, ElementJobState, ElementState
from tests.conformance.recorded import dirac_suites

S = JobState

SOURCE = Path(states_of_requests.__file__).parents[2]


def test_a_state_that_nothing_enters_says_so() -> None:
    """The tables keep states of DIRAC and WMCore. A page must not tell what no program does."""
    texts = [
        file.read_text(encoding="utf-8")
        for file in SOURCE.rglob("*.py")
        if file.name != "states.py" and file.parent.name != "why"
    ]

    def is_named(state: JobState) -> bool:
        pattern = re.compile(rf"\bJobState\.{state.name}\b|['\"]{state}['\"]")
        return any(pattern.search(text) for text in texts)

    silent = {state for state, row in JOB_STATES.rows.items() if row.meaning.endswith(UNUSED)}
    assert silent == {state for state in JobState if not is_named(state)}


@pytest.mark.parametrize("state", [RequestState.STAGING, RequestState.STAGED])
def test_no_verb_moves_a_request_to_a_placement_of_data(state: RequestState) -> None:
    assert REQUEST_STATES.rows[state].meaning.endswith(UNUSED)
    moves = re.compile(rf"\b_?(move|end)\([^()]*RequestState\.{state.name}\b")
    assert not any(moves.search(file.read_text(encoding="utf-8")) for file in SOURCE.rglob("*.py"))


# Every move that Pilotage allows and DIRAC 9.1 does not, with its reason.
MORE_THAN_DIRAC = {
    (
        S.SUBMITTING,
        S.WAITING,
    ): "an accepted submission is checked already: its jobs go straight to their queue",
    (S.WAITING, S.DONE): "a late finish of the newest epoch is applied to a job that waits again",
    (S.WAITING, S.FAILED): "a late finish that says the job has failed",
    (S.MATCHED, S.WAITING): "an offer was lost or given back: nothing has begun",
    (S.MATCHED, S.TAKEN): "a pilot takes it ahead: it is confirmed, and does not run yet",
    (S.TAKEN, S.RUNNING): "an earlier job there has ended: it starts",
    (S.TAKEN, S.WAITING): "it is given back before its start",
    (S.TAKEN, S.DONE): "it was so short that its end tells its start",
    (S.TAKEN, S.FAILED): "it was so short that its end tells its start",
    (S.TAKEN, S.RESCHEDULED): "it failed soon, or its pilot was lost",
    (S.TAKEN, S.KILLED): "its owner ends it",
    (S.RESCHEDULED, S.TAKEN): "the pilot that was given up comes back, and has not started it",
    (S.WAITING, S.TAKEN): "as from Rescheduled, after the delay of the next try",
    (S.HELD, S.TAKEN): "as from Rescheduled, while a person holds it",
    (S.MATCHED, S.DONE): "the finish comes before its confirm",
    (S.RESCHEDULED, S.DONE): "a late finish between the end of a lease and the next try",
    (S.RESCHEDULED, S.RUNNING): "the pilot that was given up comes back: the try goes on",
    (S.WAITING, S.RUNNING): "as from Rescheduled, after the delay of the next try",
    (S.STALLED, S.DONE): "the pilot is heard again, and its first word is the finish",
    (S.STALLED, S.RESCHEDULED): "the lease of a silent pilot ends: the job is tried again",
    (S.COMPLETING, S.RESCHEDULED): "outputs could not be stored, or the lease ended: tried again",
    (S.FAILED, S.SUPERSEDED): "a later submission runs it again",
    (S.KILLED, S.SUPERSEDED): "a later submission runs it again",
    (S.DONE, S.RESCHEDULED): "its owner redoes it, as an output is gone",
    (S.DONE, S.SUPERSEDED): "it lacks an output, and a later submission runs it again",
    (S.SUBMITTING, S.BLOCKED): "it depends on other jobs",
    (S.SUBMITTING, S.HELD): "its owner submits it held",
    (S.BLOCKED, S.HELD): "a person holds it",
    (S.WAITING, S.BLOCKED): "fewer jobs of its submission may run at once",
    (S.WAITING, S.HELD): "a person holds it",
    (S.RESCHEDULED, S.HELD): "a person holds it",
    (S.HELD, S.WAITING): "a person releases it",
    (S.HELD, S.BLOCKED): "a person releases it before its condition came true",
    (S.HELD, S.RUNNING): "the pilot of its lost attempt has come back",
    (S.HELD, S.DONE): "the result of its lost attempt arrives late",
    (S.HELD, S.FAILED): "the result of its lost attempt arrives late",
    (S.HELD, S.KILLED): "its owner ends it",
    (S.HELD, S.DELETED): "its owner deletes it",
    (S.BLOCKED, S.WAITING): "the jobs that it depends on have ended as it needs",
    (S.BLOCKED, S.SKIPPED): "its condition cannot come true",
    (S.BLOCKED, S.KILLED): "its owner ends it",
    (S.BLOCKED, S.DELETED): "its owner deletes it",
    (S.RESCHEDULED, S.BLOCKED): "its owner reschedules it before its condition came true",
    (S.SKIPPED, S.BLOCKED): "its parent was rescheduled",
    (S.SKIPPED, S.SUPERSEDED): "a later submission runs it again",
    (S.SKIPPED, S.DELETED): "its owner deletes it",
    (S.SUPERSEDED, S.DELETED): "its outputs are deleted as those of other jobs that have ended",
    (S.KILLED, S.RESCHEDULED): "an owner may take a kill back; DIRAC makes them submit anew",
}


def reachable(table: StateTable[Any], start: object) -> set[object]:
    found, following = {start}, [start]
    while following:
        new = table.rows[following.pop()].next - found
        found |= new
        following += new
    return found


TABLES = [
    (JOB_STATES, JobState),
    (PILOT_STATES, PilotState),
    (REQUEST_STATES, RequestState),
    (ELEMENT_STATES, ElementState),
    (ELEMENT_JOB_STATES, ElementJobState),
]


@pytest.mark.parametrize(("table", "kind"), TABLES)
def test_every_state_has_a_row_and_can_be_reached(table: StateTable[Any], kind: type[Enum]) -> None:
    assert set(table.rows) == set(kind)
    assert reachable(table, table.initial) == set(kind)
    for state, row in table.rows.items():
        assert row.next <= set(kind)
        assert state not in row.next
        assert row.meaning
        assert row.moved_by or not row.next


def test_final_jobs_leave_their_state_only_by_a_verb_of_their_owner() -> None:
    assert {S.DONE, S.FAILED, S.KILLED, S.SKIPPED, S.SUPERSEDED, S.DELETED} == jobs.FINAL
    assert JOB_STATES.rows[S.DONE].next == {S.RESCHEDULED, S.SUPERSEDED, S.DELETED}
    assert JOB_STATES.rows[S.FAILED].next == {S.RESCHEDULED, S.SUPERSEDED, S.DELETED}
    assert JOB_STATES.rows[S.KILLED].next == {S.RESCHEDULED, S.SUPERSEDED, S.DELETED}
    assert JOB_STATES.rows[S.SKIPPED].next == {S.BLOCKED, S.SUPERSEDED, S.DELETED}
    assert JOB_STATES.rows[S.SUPERSEDED].next == {S.DELETED}
    assert JOB_STATES.rows[S.DELETED].next == frozenset()


def test_from_every_state_a_job_can_end() -> None:
    for state in JobState:
        assert reachable(JOB_STATES, state) & jobs.FINAL, state


def test_every_job_state_belongs_to_one_phase_of_the_hand_over() -> None:
    custodies = {state: custody_of(state) for state in JobState}
    assert {state for state, custody in custodies.items() if custody is Custody.FINAL} == jobs.FINAL
    assert {state for state, custody in custodies.items() if custody is Custody.HELD} == jobs.CONFIRMED
    assert {state for state, custody in custodies.items() if custody is Custody.FREE} == jobs.FREE
    assert [state for state, custody in custodies.items() if custody is Custody.OFFERED] == [S.MATCHED]


def test_a_pilot_whose_lease_ran_out_may_come_back_and_no_other_that_has_ended() -> None:
    comebacks = {state for state in pilots.FINAL if PILOT_STATES.rows[state].next}
    assert comebacks == {PilotState.FAILED}
    assert PILOT_STATES.rows[PilotState.FAILED].next == {PilotState.RUNNING}
    assert set(PilotState) == pilots.LIVE | pilots.FINAL
    assert not pilots.LIVE & pilots.FINAL


def test_a_move_outside_the_table_is_refused_with_those_inside() -> None:
    JOB_STATES.check(S.WAITING, S.MATCHED)
    with pytest.raises(IllegalMove) as refused:
        JOB_STATES.check(S.SUPERSEDED, S.WAITING)
    assert "a job in state Superseded cannot become Waiting" in refused.value.message
    assert refused.value.hint.endswith("Deleted")
    with pytest.raises(IllegalMove, match="nothing"):
        JOB_STATES.check(S.DELETED, S.WAITING)


def test_the_diagram_has_every_move_and_no_other() -> None:
    lines = state_diagram(JOB_STATES).splitlines()
    moves = {tuple(line.split(" --> ")) for line in map(str.strip, lines[1:])}
    expected = {(str(old), str(new)) for old in JobState for new in JOB_STATES.rows[old].next}
    assert moves == expected | {("[*]", "Submitting"), ("Deleted", "[*]")}


def test_every_move_of_dirac_is_allowed_and_every_other_one_has_its_reason() -> None:
    theirs = dirac_suites()["job/state-machine"]["transitions"]
    assert set(theirs) == {str(state) for state in JobState} - {
        "Blocked",
        "Held",
        "Skipped",
        "Superseded",
        "Taken",
    }
    dirac = {(S(old), S(new)) for old, following in theirs.items() for new in following}
    ours = {(old, new) for old in JobState for new in JOB_STATES.rows[old].next}
    assert dirac <= ours
    assert ours - dirac == set(MORE_THAN_DIRAC)
