"""Messages about the jobs that ran in a batch job or on a node."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import List, Optional

from pilotage.wire.call import PERSON, ApiCall
from pilotage.wire.limits import Instant, Name


@dataclass
class TracedPilot:
    """A pilot that ran there."""

    pilot: int
    site: str
    ce: str
    batch_id: str
    node: str
    state: str
    started: Optional[float]
    ended: Optional[float]


@dataclass
class TracedJob:
    """An attempt at a job in one of the pilots."""

    job: int
    epoch: int
    owner: str
    group: str
    pilot: int
    started: float
    ended: Optional[float]
    """None: it runs."""
    outcome: str
    processors: int


@dataclass
class Trace:
    """The pilots and jobs of a batch job, or of a node at an instant."""

    pilots: List[TracedPilot] = field(default_factory=list)
    jobs: List[TracedJob] = field(default_factory=list)
    """The jobs, ordered by their start."""
    complete: bool = True
    """False: there are more jobs than are shown."""


@dataclass
class TraceQuery:
    """A batch job, or a node at an instant; now if there is none."""

    batch_id: Name = ""
    node: Name = ""
    at: Optional[Instant] = None


TRACE = ApiCall("GET", "/v1/trace", TraceQuery, Trace, PERSON)
