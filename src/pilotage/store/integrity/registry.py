"""All checks, in the order in which repairs are made: counters come last, since repairs change rows."""

from __future__ import annotations

from typing import Final

from pilotage.store.integrity import chains, counters, datasets, jobs, pilots, requests, servers, submissions
from pilotage.store.integrity.check import Check

CHECKS: Final[tuple[Check, ...]] = (
    *submissions.CHECKS,
    *pilots.CHECKS,
    *jobs.CHECKS,
    *chains.CHECKS,
    *datasets.CHECKS,
    *requests.CHECKS,
    *servers.CHECKS,
    *counters.CHECKS,
)
