"""How often the duties of a simulated server run."""

from __future__ import annotations

import pytest

from pilotage.server.duties.ces import LocalCesDuty
from pilotage.server.duties.director import DirectorDuty
from pilotage.server.duties.information import InformationDuty, LocalInformationDuty
from pilotage.server.duties.intake import IntakeDuty
from pilotage.twin.periods import (
    ACCOUNTS,
    CYCLES,
    LONGEST,
    RARE,
    SHORTEST,
    USUAL,
    director_period,
    least_periods,
)

HOUR, MONTH = 3600.0, 30 * 86_400.0


@pytest.mark.parametrize(
    ("span", "run", "expected"),
    [
        (0.0, 0.0, SHORTEST),
        (HOUR, 1.0, SHORTEST),
        (HOUR, 50.0, 5.0),
        (HOUR, HOUR, USUAL),
        (20.0 * CYCLES, 50.0, 20.0),
        (MONTH, 1.0, LONGEST),
    ],
)
def test_the_director_runs_rarely_in_long_traces_and_often_among_short_jobs(
    span: float, run: float, expected: float
) -> None:
    assert director_period(span, run) == expected


def test_each_kind_of_duty_has_its_least_period() -> None:
    of = least_periods(HOUR, HOUR)

    def period(kind: type) -> float:
        return of(object.__new__(kind))

    assert period(DirectorDuty) == period(LocalCesDuty) == USUAL
    assert period(InformationDuty) == period(LocalInformationDuty) == ACCOUNTS
    assert period(IntakeDuty) == RARE
