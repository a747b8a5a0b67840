"""The result of a run of the twin, in arrays: 200,000 jobs take some ten MB."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum

import numpy as np

from pilotage.twin.columns import Array, NameIndex, RowBuffer

NOT_SIMULATED = (
    "the network: each message takes 10 ms, and none is lost",
    "disks: no job waits for a disk, and none fills it",
    "data transfers: inputs and outputs take no time",
)
"""Said in each report."""


class TwinOutcome(IntEnum):
    """Where a job stands when the run ends."""

    DONE = 0
    FAILED = 1
    RUNNING = 2
    WAITING = 3


_JOB = np.dtype(
    [
        ("number", "i8"),
        ("submit", "f8"),
        ("start", "f8"),
        ("end", "f8"),
        ("used", "f8"),
        ("run", "f8"),
        ("owner", "i4"),
        ("group", "i4"),
        ("processors", "i4"),
        ("attempts", "i2"),
        ("outcome", "i1"),
    ]
)


@dataclass(frozen=True, slots=True)
class JobRun:
    """One job of a run. Instants are virtual seconds from the begin of the trace."""

    number: int
    owner: str
    group: str
    processors: int
    submit: float
    start: float | None
    """Its payload's first start; None: it did not start."""
    end: float | None
    """Its final state; None: it has none."""
    attempts: int
    outcome: TwinOutcome
    used: float
    """Core-seconds of all its attempts."""
    run: float
    """Seconds that its payload takes."""


class JobRuns:
    """All jobs of a run, in the order in which they were added."""

    def __init__(self) -> None:
        self.owners = NameIndex()
        self.groups = NameIndex()
        self._buffer = RowBuffer(_JOB)

    def add(self, job: JobRun) -> None:
        self._buffer.append(
            (
                job.number,
                job.submit,
                math.nan if job.start is None else job.start,
                math.nan if job.end is None else job.end,
                job.used,
                job.run,
                self.owners.place(job.owner),
                self.groups.place(job.group),
                job.processors,
                job.attempts,
                job.outcome,
            )
        )

    @property
    def rows(self) -> Array:
        """The columns number, submit, start, end (nan: none), used, run, processors, attempts, outcome, owner, group.

        Owner and group are places in `owners` and `groups`.
        """
        return self._buffer.rows

    def __len__(self) -> int:
        return len(self._buffer)


_PILOT = np.dtype(
    [
        ("requested", "f8"),
        ("started", "f8"),
        ("ended", "f8"),
        ("payload", "f8"),
        ("startup", "f8"),
        ("idle", "f8"),
        ("lost", "f8"),
        ("ce", "i4"),
        ("processors", "i4"),
    ]
)


@dataclass(frozen=True, slots=True)
class PilotRun:
    """One pilot of a run. Its four sums of core-seconds add up to processors × (ended - started)."""

    ce: str
    processors: int
    requested: float
    started: float | None
    """Begin of its batch job; None: it did not begin."""
    ended: float | None
    """None: it still waits or runs when the run ends. Its core-seconds count until then."""
    payload: float
    """Core-seconds of attempts whose result was applied, or that still run."""
    startup: float
    """Core-seconds before its first request for a job."""
    idle: float
    lost: float
    """Core-seconds of attempts whose result was not applied."""


class PilotRuns:
    """All pilots of a run."""

    def __init__(self) -> None:
        self.ces = NameIndex()
        self._buffer = RowBuffer(_PILOT)

    def add(self, pilot: PilotRun) -> None:
        self._buffer.append(
            (
                pilot.requested,
                math.nan if pilot.started is None else pilot.started,
                math.nan if pilot.ended is None else pilot.ended,
                pilot.payload,
                pilot.startup,
                pilot.idle,
                pilot.lost,
                self.ces.place(pilot.ce),
                pilot.processors,
            )
        )

    @property
    def rows(self) -> Array:
        """The columns requested, started and ended (nan: none), payload, startup, idle, lost, processors, ce."""
        return self._buffer.rows

    def __len__(self) -> int:
        return len(self._buffer)


@dataclass(frozen=True, slots=True)
class TwinSample:
    """The state at one instant."""

    time: float
    used: Mapping[str, float]
    """Core-seconds of each group since the begin of the run."""
    busy: int
    """Cores that run payloads."""
    idle: int
    """Cores of pilots that have no payload."""
    starting: int
    """Cores of batch jobs that have begun and whose pilots did not ask for work yet."""
    waiting: int
    """Jobs that wait."""
    running: int
    """Jobs that run."""


_SAMPLED = ("time", "busy", "idle", "starting", "waiting", "running")


class TwinSamples:
    """Samples in the order of time. The groups are given first, so that each sample has one length."""

    def __init__(self, groups: Sequence[str]) -> None:
        self.groups = tuple(groups)
        by_group = ("used", "f8", (len(self.groups),))
        self._buffer = RowBuffer(np.dtype([*((name, "f8") for name in _SAMPLED), by_group]))

    def add(self, sample: TwinSample) -> None:
        self._buffer.append(
            (
                *(getattr(sample, name) for name in _SAMPLED),
                tuple(sample.used.get(group, 0.0) for group in self.groups),
            )
        )

    @property
    def rows(self) -> Array:
        """The columns time, busy, idle, starting, waiting, running; used has a column for each group."""
        return self._buffer.rows

    def __len__(self) -> int:
        return len(self._buffer)


@dataclass(frozen=True, slots=True)
class TwinCounts:
    """The work of the services in one run."""

    submissions: int = 0
    """Jobs that were submitted."""
    matches: int = 0
    """Jobs that were offered to pilots."""
    exchanges: int = 0
    """Messages of pilots that the server answered."""


@dataclass(slots=True)
class TwinResult:
    """One run of a plan."""

    seed: int
    until: float
    """The virtual second at which the run ended."""
    jobs: JobRuns
    pilots: PilotRuns
    samples: TwinSamples
    counts: TwinCounts
    cpu_seconds: float
    """Processor time of the run."""
    standstill: str = ""
    """Why the jobs that are left would have waited for ever; empty: the run was not ended for this reason."""
    not_simulated: tuple[str, ...] = field(default=NOT_SIMULATED)
