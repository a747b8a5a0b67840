"""When an agent makes a call again, without a server or a clock."""

from __future__ import annotations

from math import inf
from random import Random

import pytest

from pilotage.agent.call_attempts import LONGEST_PAUSE, CallAttempts


def begin(patience: float = inf, *, has_joined: bool = True) -> CallAttempts:
    return CallAttempts(0.0, Random(1), patience=patience, has_joined=has_joined)


def pauses(attempts: CallAttempts, most: int = 100) -> list[float]:
    """The pauses of a call that fails at once each time."""
    made, now = list[float](), 0.0
    while (
        len(made) < most and (pause := attempts.pause_after_failure(now, 0.0, is_untrusted=False)) is not None
    ):
        made.append(pause)
        now += pause
    return made


def test_an_agent_that_has_joined_never_gives_up_and_pauses_for_longer_and_longer() -> None:
    made = pauses(begin())
    assert len(made) == 100
    assert 0.2 <= made[0] <= 0.26
    assert all(LONGEST_PAUSE <= pause <= 1.3 * LONGEST_PAUSE for pause in made[7:])


def test_no_attempt_is_made_after_the_patience() -> None:
    made = pauses(begin(60.0))
    assert 60.0 - 1.3 * LONGEST_PAUSE <= sum(made) <= 60.0


def test_the_pause_that_the_server_asks_for_is_kept() -> None:
    pause = begin().pause_after_failure(0.0, 40.0, is_untrusted=False)
    assert pause == pytest.approx(46.0, abs=6.0)


@pytest.mark.parametrize("has_joined", [True, False])
def test_a_refused_certificate_is_final_before_the_first_join_only(has_joined: bool) -> None:
    pause = begin(has_joined=has_joined).pause_after_failure(0.0, 0.0, is_untrusted=True)
    assert (pause is not None) is has_joined
