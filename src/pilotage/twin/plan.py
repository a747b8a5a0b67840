"""The input of one run of the twin, and how far the run is."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pilotage.core.policy import Policy
from pilotage.twin.ces import TwinCe
from pilotage.twin.workload import TraceJobs


@dataclass(frozen=True, slots=True)
class TwinPlan:
    """Jobs, a policy, CEs and a seed. Equal plans give equal results."""

    jobs: TraceJobs
    """In the order of their submission. Each fits a node, and the policy admits its owner and group."""
    policy: Policy
    policy_text: str
    """The document that `policy` was parsed from."""
    ces: tuple[TwinCe, ...]
    """The policy has a CE of each name."""
    seed: int
    until: float | None = None
    """Seconds from the begin of the trace at which the run ends; None: when all jobs have ended."""

    @property
    def span(self) -> float:
        """Seconds from the begin of the trace to the last submission, or to the end of the run if it is known."""
        if self.until is not None:
            return self.until
        return self.jobs[-1].submit if len(self.jobs) else 0.0

    @property
    def median_run(self) -> float:
        """Seconds: half of the jobs run for less."""
        return float(np.median(self.jobs.rows["run"])) if len(self.jobs) else 0.0


@dataclass(frozen=True, slots=True)
class TwinProgress:
    """How far a run is."""

    now: float
    """Virtual seconds from the begin of the trace."""
    submitted: int
    """Jobs that were submitted."""
    ended: int
    """Jobs that are final."""
    jobs: int
    """Jobs of the plan."""
    until: float | None = None

    @property
    def fraction(self) -> float:
        """The part of the run that is done, from 0 to 1: by jobs, or by virtual time if that is further."""
        by_jobs = (self.submitted + self.ended) / (2 * self.jobs) if self.jobs else 0.0
        by_time = self.now / self.until if self.until else 0.0
        return min(1.0, max(by_jobs, by_time))
