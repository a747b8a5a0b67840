"""The hand-over of a pilot to a batch system: its table against the rules in words, and a director that crashes."""

from __future__ import annotations

from itertools import product

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from pilotage.core.pilots.handover import (
    TABLE,
    Action,
    Seen,
    Sight,
    SubmissionPhase,
    SubmissionStep,
    next_step,
    sight_of,
)

EVERYTHING = list(product(SubmissionPhase, Sight))
HERE = {Sight.HELD, Sight.PRESENT}
GIVES_UP = {Action.ABORT, Action.LOSE, Action.END}


def by_the_rules(phase: SubmissionPhase, sight: Sight) -> SubmissionStep:
    """The rules of the hand-over, said once more in other words than the code's."""
    if sight is Sight.UNKNOWN:
        return SubmissionStep(Action.NONE, phase)
    if phase is SubmissionPhase.LOST:
        return SubmissionStep(Action.CANCEL if sight in HERE else Action.NONE, phase)
    if phase is SubmissionPhase.CANCELLING:
        here = sight in HERE
        return (
            SubmissionStep(Action.CANCEL, phase) if here else SubmissionStep(Action.END, SubmissionPhase.LOST)
        )
    if sight in HERE:
        held = sight is Sight.HELD
        if phase is SubmissionPhase.RELEASED:
            return SubmissionStep(Action.NONE, phase)
        if phase in (SubmissionPhase.HELD, SubmissionPhase.RELEASING):
            # Only what a listing shows is released: a call may end well without effect.
            released = SubmissionStep(Action.NONE, SubmissionPhase.RELEASED)
            return SubmissionStep(Action.RELEASE, SubmissionPhase.RELEASING) if held else released
        return SubmissionStep(Action.ADOPT, SubmissionPhase.HELD if held else SubmissionPhase.RELEASED)
    if phase is SubmissionPhase.RELEASED:
        return SubmissionStep(Action.LOSE, SubmissionPhase.LOST)
    # What was not seen to run is in doubt first.
    if sight is Sight.STILL_ABSENT:
        return SubmissionStep(Action.ABORT, SubmissionPhase.LOST)
    return SubmissionStep(Action.LOOK_AGAIN, SubmissionPhase.IN_DOUBT)


@pytest.mark.parametrize(("phase", "sight"), EVERYTHING)
def test_every_row_says_what_the_rules_say(phase: SubmissionPhase, sight: Sight) -> None:
    assert TABLE[phase, sight] == by_the_rules(phase, sight)


def test_the_table_is_total() -> None:
    assert set(TABLE) == set(EVERYTHING)


@pytest.mark.parametrize(("phase", "sight"), EVERYTHING)
def test_a_system_that_cannot_hold_knows_neither_held_nor_releasing(
    phase: SubmissionPhase, sight: Sight
) -> None:
    step = next_step(phase, sight, holds=False)
    assert step.next not in (SubmissionPhase.HELD, SubmissionPhase.RELEASING) or sight is Sight.UNKNOWN
    assert step.action is not Action.RELEASE
    if step.next is not SubmissionPhase.RELEASED:
        assert step == TABLE[phase, sight]


@pytest.mark.parametrize(
    ("seen", "absent_since", "now", "sight"),
    [
        (Seen.SEEN, None, 5.0, Sight.PRESENT),
        (Seen.SEEN, 0.0, 500.0, Sight.PRESENT),
        (Seen.UNKNOWN, 0.0, 500.0, Sight.UNKNOWN),
        (Seen.ABSENT, None, 500.0, Sight.ABSENT),
        (Seen.ABSENT, 100.0, 109.9, Sight.ABSENT),
        (Seen.ABSENT, 100.0, 110.0, Sight.STILL_ABSENT),
        (Seen.ABSENT, 100.0, 50.0, Sight.ABSENT),
    ],
)
def test_only_complete_listings_a_settle_time_apart_prove_an_absence(
    seen: Seen, absent_since: float | None, now: float, sight: Sight
) -> None:
    assert sight_of(seen, absent_since, now, settle=10.0) is sight


SETTLE = 10.0
LATEST = 5.0
"""Seconds after which a call has arrived, or never does. The settle time is twice that."""


class Director(RuleBasedStateMachine):
    """One pilot, a batch system that answers late or not at all, and a director that may end after any step.

    Its records are the phase and `absent_since`; a crash loses nothing of them and everything else.
    """

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        self.phase = SubmissionPhase.PREPARING
        self.absent_since: float | None = None
        self.under_way: list[tuple[float, str]] = []
        """Calls that have been sent: when they arrive, and which."""
        self.there: str | None = None
        """The batch job: "held", "running", or None."""
        self.gave_up_at: float | None = None

    @initialize(called=st.booleans(), late=st.floats(0, LATEST), answered=st.booleans())
    def submit(self, called: bool, late: float, answered: bool) -> None:
        """PREPARING is stored before the call; without an answer it stays. `called`: the director lived to call."""
        if not called:
            return
        self.under_way.append((self.now + late, "submit"))
        if answered:
            self.arrive(self.now + late)
            self.phase = SubmissionPhase.HELD

    @rule(seconds=st.floats(0, SETTLE))
    def time_passes(self, seconds: float) -> None:
        self.now += seconds
        self.arrive(self.now)

    def arrive(self, now: float) -> None:
        for call in sorted(call for call in self.under_way if call[0] <= now):
            self.under_way.remove(call)
            if call[1] == "submit":
                self.there = "held"
            elif call[1] == "release" and self.there is not None:
                self.there = "running"
            elif call[1] == "cancel":
                self.there = None

    @precondition(lambda self: self.there is not None)
    @rule()
    def ends_or_is_lost_by_the_system(self) -> None:
        self.there = None

    @rule(
        works=st.booleans(),
        acts=st.booleans(),
        late=st.floats(0, LATEST),
        answered=st.booleans(),
        effective=st.booleans(),
    )
    def look(self, works: bool, acts: bool, late: float, answered: bool, effective: bool) -> None:
        """`acts`: the director does not crash before it acts; `answered`: nor before it records what it did.

        `effective`: the command does what it says.
        """
        seen = (Seen.SEEN if self.there else Seen.ABSENT) if works else Seen.UNKNOWN
        held = self.there == "held"
        before, sight = self.phase, sight_of(seen, self.absent_since, self.now, SETTLE, held=held)
        step = next_step(self.phase, sight)
        if not works:
            assert step == SubmissionStep(Action.NONE, self.phase)
        if seen is Seen.SEEN:
            self.absent_since = None
        if not acts:
            return
        if step.action is Action.LOOK_AGAIN and self.absent_since is None:
            self.absent_since = self.now
        if step.action in (Action.RELEASE, Action.CANCEL) and effective:
            self.under_way.append((self.now + late, step.action.value))
            if answered:
                self.arrive(self.now + late)
        if step.action in GIVES_UP:
            # Nothing that still runs, or is still to begin, is ever given up.
            assert self.there is None
            assert not [call for call in self.under_way if call[1] == "submit"]
            self.gave_up_at = self.now
        self.phase = step.next
        if self.phase is SubmissionPhase.RELEASED is not before:
            assert self.there == "running", "a listing showed that it may start"
        assert before is not SubmissionPhase.LOST or self.phase is SubmissionPhase.LOST

    @invariant()
    def nothing_runs_that_was_given_up(self) -> None:
        assert self.gave_up_at is None or self.there is None


TestDirector = Director.TestCase
