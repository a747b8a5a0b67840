"""The book of turns: a turn that nobody takes over is given back."""

from __future__ import annotations

import pytest

from pilotage.core.ids import PilotId
from pilotage.core.shares.turns import START_TIME, Turn, TurnBook

GONE, STILL_THERE = PilotId(1), PilotId(2)
ENDED = 100.0


def book() -> TurnBook:
    """Two pilots of ann's gave way to ben, who paid two turns of 60 s; one of the pilots has ended."""
    turns = TurnBook(accounts={"local": {"ann": 60.0, "ben": -60.0}})
    for pilot in (GONE, STILL_THERE):
        turns.give_way(pilot, Turn("local", "ben", 60.0, credited={"ann": 30.0, "ben": 30.0}, paid=60.0))
    turns.end(GONE, ENDED)
    return turns


@pytest.mark.parametrize("now", [ENDED, ENDED + START_TIME - 1])
def test_a_successor_has_time_to_start(now: float) -> None:
    turns = book()
    turns.cancel_overdue(now)
    assert list(turns.following) == [GONE, STILL_THERE]
    assert turns.accounts == {"local": {"ann": 60.0, "ben": -60.0}}


@pytest.mark.parametrize("now", [ENDED + START_TIME, ENDED - 200.0])
def test_an_overdue_turn_is_given_back_and_a_rollback_restores_it(now: float) -> None:
    """Also after a clock that stepped back: else the turn would be expected for as long as the step."""
    turns = book()
    undo = turns.cancel_overdue(now)
    assert list(turns.following) == [STILL_THERE]
    assert turns.accounts == {"local": {"ann": 30.0, "ben": -30.0}}
    undo()
    assert list(turns.following) == [GONE, STILL_THERE]
    assert turns.accounts == {"local": {"ann": 60.0, "ben": -60.0}}


def test_a_rolled_back_end_leaves_the_turn_expected() -> None:
    turns = book()
    turns.end(STILL_THERE, ENDED)()
    turns.cancel_overdue(ENDED + START_TIME)
    assert list(turns.following) == [STILL_THERE]
