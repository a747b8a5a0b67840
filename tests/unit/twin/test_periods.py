"""How often the duties of a simulated server run."""

from __future__ import annotations

import pytest

from pilotage.server.duties.director import DirectorDuty
from pilotage.server.duties.information import InformationDuty, LocalInformationDuty
from pilotage.server.duties.intake import IntakeDuty
from pilotage.twin.periods import ACCOUNTS, CYCLES, LONGEST, RARE, SHORTEST, director_period, least_periods

HOUR, MONTH = 3600.0, 30 * 86_400.0


@pytest.mark.parametrize(
    ("span", "expected"), [(0.0, SHORTEST), (HOUR, SHORTEST), (10.0 * CYCLES, 10.0), (MONTH, LONGEST)]
)
def test_long_traces_have_rarer_cycles_of_the_director(span: float, expected: float) -> None:
    assert director_period(span) == expected


def test_each_kind_of_duty_has_its_least_period() -> None:
    of = least_periods(HOUR)

    def period(kind: type) -> float:
        return of(object.__new__(kind))

    assert period(DirectorDuty) == SHORTEST
    assert period(InformationDuty) == period(LocalInformationDuty) == ACCOUNTS
    assert period(IntakeDuty) == RARE
