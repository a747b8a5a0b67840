"""Profiles of hypothesis: the same examples in every run; `--hypothesis-profile deep` looks for new ones."""

from __future__ import annotations

from hypothesis import HealthCheck, settings

QUIET = (HealthCheck.too_slow, HealthCheck.data_too_large)

settings.register_profile(
    "steady", derandomize=True, deadline=None, max_examples=50, suppress_health_check=QUIET
)
settings.register_profile("deep", deadline=None, max_examples=1500, suppress_health_check=QUIET)
settings.load_profile("steady")
