"""The records of a period are told once all of them are stored."""

from __future__ import annotations

import pytest

from pilotage.core.errors import Overloaded
from pilotage.services.shares.accounting import SETTLED, check_settled

NOW = 1_000_000.0


@pytest.mark.parametrize("end", [NOW, NOW - 1.0, NOW - SETTLED + 0.5])
def test_a_period_that_has_just_ended_is_refused_for_a_while(end: float) -> None:
    with pytest.raises(Overloaded) as refusal:
        check_settled(end, NOW)
    check_settled(end, NOW + refusal.value.retry_after)


@pytest.mark.parametrize("end", [NOW - SETTLED, 0.0, NOW + 1.0, NOW + 1e9])
def test_other_periods_are_told(end: float) -> None:
    check_settled(end, NOW)
