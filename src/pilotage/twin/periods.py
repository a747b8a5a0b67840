"""How often the duties of a server run for a trace: each cycle costs time of the run."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from pilotage.server.duties.ces import BatchCesDuty, LocalCesDuty
from pilotage.server.duties.costs import CostDuty
from pilotage.server.duties.director import DirectorDuty
from pilotage.server.duties.duty import Duty
from pilotage.server.duties.information import InformationDuty
from pilotage.server.duties.leases import LeaseDuty
from pilotage.server.duties.shares import PriorityDuty, ShareDuty

CYCLES = 10_000
"""Cycles of the director until the last submission of a long trace, unless `LONGEST` asks for more."""
SHORTEST, USUAL, LONGEST = 1.0, 10.0, 60.0
"""Seconds between two cycles of the director: a new job may wait for its pilot longer by this time."""
RUNS = 10.0
"""The director runs so often in the time of a job: among short jobs, 10 s are much."""
SIGNS_OF_LIFE = 30.0
"""Seconds between two cycles of the lease duty. Use is charged up to the last one."""
ACCOUNTS = 600.0
RARE = 3600.0
"""Seconds for duties that a trace does not need: it has no requests, no agents and no people who look."""


def director_period(span: float, run: float) -> float:
    """Seconds between two cycles of the director in a run of `span` seconds, with jobs of `run` seconds."""
    return min(LONGEST, max(SHORTEST, min(USUAL, run / RUNS), span / CYCLES))


def least_periods(span: float, run: float) -> Callable[[Duty], float]:
    """The seconds between two cycles of each duty, at least. Parameters: see `director_period`."""
    pilots = director_period(span, run)
    periods: Mapping[type[Duty], float] = {
        DirectorDuty: pilots,
        BatchCesDuty: pilots,
        LocalCesDuty: pilots,
        PriorityDuty: pilots,
        ShareDuty: pilots,
        InformationDuty: ACCOUNTS,
        LeaseDuty: SIGNS_OF_LIFE,
        CostDuty: ACCOUNTS,
    }
    return lambda duty: next((period for kind, period in periods.items() if isinstance(duty, kind)), RARE)
