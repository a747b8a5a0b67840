"""A study: the runs of one or several policies on the same jobs, with the same seeds."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from pilotage.core.jobs.durations import format_duration
from pilotage.twin.ces import TwinCe
from pilotage.twin.measures import QUANTILES, RunMeasures
from pilotage.twin.report.quantities import percent
from pilotage.twin.workload import TraceJobs

QUANTILE_NAMES: Final = tuple(f"{100 * part:g} %" for part in QUANTILES)


@dataclass(slots=True)
class PolicyRuns:
    """The runs of one policy."""

    name: str
    runs: list[RunMeasures] = field(default_factory=list)
    """In the order of their seeds."""


@dataclass(frozen=True, slots=True)
class Study:
    """Everything that a report tells."""

    trace: str
    """The name of the trace."""
    jobs: int
    seeds: tuple[int, ...]
    """The seeds that were asked for."""
    policies: tuple[PolicyRuns, ...]
    """The others are compared with the first one."""
    fits: tuple[str, ...]
    """The run times and waits of the runs, one sentence each."""
    notes: tuple[str, ...] = ()
    """Sentences about lines and jobs that are left out."""
    interrupted: bool = False

    @property
    def finished(self) -> tuple[PolicyRuns, ...]:
        """The policies with at least one finished run."""
        return tuple(policy for policy in self.policies if policy.runs)

    @property
    def not_simulated(self) -> tuple[str, ...]:
        runs = [run for policy in self.policies for run in policy.runs]
        return tuple(dict.fromkeys(text for run in runs for text in run.not_simulated))

    @property
    def standstills(self) -> tuple[str, ...]:
        """A sentence for each policy under which jobs would have waited for ever: that of its first such run."""
        return tuple(sentence for policy in self.policies for sentence in _standstill(policy))

    @property
    def partial(self) -> str:
        """A sentence if runs are missing, else empty."""
        asked = len(self.seeds) * len(self.policies)
        done = sum(len(policy.runs) for policy in self.policies)
        if done == asked:
            return ""
        reason = "it was interrupted" if self.interrupted else "others failed"
        return f"This report is partial: {done} of {asked} runs have finished, {reason}."


def _standstill(policy: PolicyRuns) -> Iterator[str]:
    stuck = [run for run in policy.runs if run.standstill]
    if stuck:
        part = "" if len(policy.runs) == 1 else f" {len(stuck)} of {len(policy.runs)} runs:"
        yield f"{policy.name} came to a standstill:{part} {stuck[0].standstill}."


def describe_fits(jobs: TraceJobs, ces: Sequence[TwinCe]) -> tuple[str, ...]:
    """The run times of the jobs, and the waits, delays and failures of the CEs."""
    runs = np.quantile(jobs.rows["run"], QUANTILES) if len(jobs) else [0.0] * len(QUANTILES)
    sentences = [f"run times are those of the trace: {_quantiles([float(run) for run in runs])}"]
    for ce in ces:
        waits = (
            f"batch jobs wait {_quantiles([ce.wait_at(part) for part in QUANTILES])}"
            if ce.waits
            else "batch jobs begin as soon as a node is free"
        )
        failures = (
            f"{percent(ce.failure_rate)} of its pilots fail in an hour"
            if ce.failure_rate
            else "no pilot fails"
        )
        sentences.append(
            f"CE {ce.name} ({ce.cores:,} cores): {waits}; pilots ask for work"
            f" {format_duration(ce.start_delay)} after their begin; {failures}"
        )
    return tuple(sentences)


def _quantiles(values: Sequence[float]) -> str:
    pairs = zip(QUANTILE_NAMES, values, strict=True)
    return ", ".join(f"{name} up to {format_duration(value)}" for name, value in pairs)
