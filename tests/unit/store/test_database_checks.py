"""The lines of `pilotage db check` read well, whatever the number of rows."""

from __future__ import annotations

import pytest

from pilotage.store.integrity.check import Check, describe
from pilotage.store.integrity.registry import CHECKS


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.name)
def test_no_number_stands_before_the_plural(check: Check) -> None:
    plural = check.what[0].upper() + check.what[1:]
    assert describe(check, 1, [7]).rows == f"{plural}: 1 (7)"
    assert describe(check, 1200, [7, 9]).rows == f"{plural}: 1,200 (7, 9 ...)"
