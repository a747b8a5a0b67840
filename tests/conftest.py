"""Profiles of hypothesis. `steady` and `quick` draw the same examples in every run; `deep` draws new ones.

`./test` uses `steady`, `./test --fast` uses `quick`. A test that needs more examples multiplies those of the profile.
"""

from __future__ import annotations

import os
import sys

import pytest
from hypothesis import HealthCheck, settings

from tests import postgres

QUIET = (HealthCheck.too_slow, HealthCheck.data_too_large)

settings.register_profile(
    "steady", derandomize=True, deadline=None, max_examples=50, suppress_health_check=QUIET
)
settings.register_profile(
    "quick", derandomize=True, deadline=None, max_examples=8, suppress_health_check=QUIET
)
settings.register_profile("deep", deadline=None, max_examples=1500, suppress_health_check=QUIET)
settings.load_profile("steady")


# Else every server and pilot of the tests would compile its modules, which takes longer than its start.
sys.dont_write_bytecode = False
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)


def pytest_runtest_setup(item: pytest.Item) -> None:
    postgres.forbidden = item.get_closest_marker("slow") is None
