"""The CEs of the twin as a server's own pilots saw them: cores, waits, failures."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from pilotage.core.policy import Ce, Policy
from pilotage.twin.ces import TwinCe, TwinNodes

QUANTILES: Final = 21
"""Quantiles of waits: each 5 %."""
LEAST_WALL: Final = 60.0
HIGHEST_FAILURE_RATE: Final = 3600.0


@dataclass(frozen=True, slots=True)
class RecordedPilot:
    """When a pilot was submitted, called for the first time, and ended."""

    ce: str
    processors: int
    submitted: float
    started: float | None
    ended: float | None
    failed: bool
    gave_way: bool = False
    """It left since it was another owner's turn: it could not isolate payloads."""


def ces_of_pilots(
    policy: Policy, pilots: Sequence[RecordedPilot], begin: float, end: float, largest_job: int
) -> tuple[tuple[TwinCe, ...], tuple[str, ...]]:
    """The CEs of a policy that had pilots in the period, and sentences about the others."""
    ces, notes = [], []
    for name, settings in policy.ces.items():
        own = [pilot for pilot in pilots if pilot.ce == name and pilot.started is not None]
        if not any(pilot.ended is None or pilot.ended >= begin for pilot in own):
            notes.append(f"CE {name} had no pilots in the period, so it is left out")
            continue
        ces.append(_ce(name, settings, own, begin, end, largest_job))
    return tuple(ces), tuple(notes)


def _ce(
    name: str, settings: Ce, pilots: Sequence[RecordedPilot], begin: float, end: float, largest_job: int
) -> TwinCe:
    cores = _most_cores(pilots, end)
    waits = [pilot.started - pilot.submitted for pilot in pilots if pilot.started and pilot.started >= begin]
    hours = sum(_hours(pilot, begin, end) for pilot in pilots)
    failed = sum(pilot.failed and begin <= (pilot.ended or 0.0) <= end for pilot in pilots)
    return TwinCe(
        name,
        tuple(_nodes(settings, cores, largest_job)),
        wall=max(LEAST_WALL, settings.wall),
        start_delay=0.0,
        waits=tuple(np.quantile(np.maximum(waits, 0.0), np.linspace(0, 1, QUANTILES)).round(3).tolist())
        if waits
        else (),
        failure_rate=min(HIGHEST_FAILURE_RATE, round(failed / hours, 6)) if hours else 0.0,
        isolates=not any(pilot.gave_way for pilot in pilots),
    )


def _most_cores(pilots: Sequence[RecordedPilot], end: float) -> int:
    """The most cores that the pilots had at once."""
    steps = [(pilot.started or 0.0, pilot.processors) for pilot in pilots]
    steps += [(end if pilot.ended is None else pilot.ended, -pilot.processors) for pilot in pilots]
    cores = most = 0
    for _, change in sorted(steps):
        cores += change
        most = max(most, cores)
    return most


def _hours(pilot: RecordedPilot, begin: float, end: float) -> float:
    """Hours of the period in which the pilot ran."""
    last = end if pilot.ended is None else min(end, pilot.ended)
    return max(0.0, last - max(begin, pilot.started or 0.0)) / 3600


def _nodes(settings: Ce, cores: int, largest_job: int) -> Iterator[TwinNodes]:
    """A local CE is one node. A node of a batch system has the size of its pilots, or of the largest job."""
    if settings.type == "local":
        yield TwinNodes(1, max(cores, settings.processors, largest_job), settings.memory)
        return
    size = max(settings.pilot_processors, largest_job)
    yield TwinNodes(max(1, -(-cores // size)), size, 0)
