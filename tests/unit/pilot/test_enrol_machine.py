"""How long a pilot tries to enrol, and when it tries again, without a server or a clock."""

from __future__ import annotations

from itertools import pairwise
from random import Random

import pytest

from pilotage.pilot.enrol_machine import UNTRUSTED_PATIENCE, EnrolFailure, EnrolMachine

DOWN = EnrolFailure("down")
UNTRUSTED = EnrolFailure("another certificate", untrusted=True)


def attempts(machine: EnrolMachine, failure: EnrolFailure, now: float = 0.0) -> list[float]:
    """The instants of all attempts until the machine gives up, if each fails at once."""
    made = [now]
    while (retry := machine.on_failure(failure, now, is_cancelled=False)) is not None:
        assert retry.at > now
        now = retry.at
        made.append(now)
    return made


@pytest.mark.parametrize("patience", [0.0, 3.0, 3600.0])
def test_the_last_attempt_is_made_when_the_patience_is_over(patience: float) -> None:
    made = attempts(EnrolMachine(patience, 0.0, Random(1)), DOWN)
    assert made[-2] <= patience < made[-1] <= patience + 0.1001


def test_pauses_grow_to_half_a_minute() -> None:
    made = attempts(EnrolMachine(3600.0, 0.0, Random(1)), DOWN)
    pauses = [later - earlier for earlier, later in pairwise(made)]
    assert 0.1 <= pauses[0] <= 0.2
    assert all(pause <= 30.0 for pause in pauses)
    assert all(pause >= 15.0 for pause in pauses[8:-1])


def test_pilots_that_start_together_do_not_come_together() -> None:
    seconds = {attempts(EnrolMachine(60.0, 0.0, Random(seed)), DOWN)[1] for seed in range(20)}
    assert len(seconds) == 20


def test_the_pause_that_the_server_asks_for_is_kept() -> None:
    retry = EnrolMachine(60.0, 0.0, Random(1)).on_failure(
        EnrolFailure("full", retry_after=9.0), 1.0, is_cancelled=False
    )
    assert retry is not None
    assert retry.at == 10.0


def test_a_certificate_that_stays_refused_ends_the_patience_early() -> None:
    made = attempts(EnrolMachine(3600.0, 0.0, Random(1)), UNTRUSTED)
    assert made[-1] == pytest.approx(UNTRUSTED_PATIENCE + 0.1)


def test_a_server_that_is_only_away_restarts_the_patience_with_certificates() -> None:
    machine = EnrolMachine(3600.0, 0.0, Random(1))
    assert machine.on_failure(DOWN, UNTRUSTED_PATIENCE, is_cancelled=False)
    made = attempts(machine, UNTRUSTED, UNTRUSTED_PATIENCE + 1.0)
    assert made[-1] == pytest.approx(2 * UNTRUSTED_PATIENCE + 0.1)


def test_a_signal_ends_the_attempts() -> None:
    assert EnrolMachine(3600.0, 0.0, Random(1)).on_failure(DOWN, 0.0, is_cancelled=True) is None


def test_each_reason_is_told_once_with_the_patience_that_is_left() -> None:
    machine = EnrolMachine(60.0, 0.0, Random(1))
    told = [
        machine.on_failure(failure, 10.0, is_cancelled=False)
        for failure in (DOWN, DOWN, EnrolFailure("full"))
    ]
    assert [retry.is_news for retry in told] == [True, False, True]
    assert told[0].patience == 50.0
