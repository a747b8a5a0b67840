"""Messages about the jobs that ran in a batch job or on a node.

GET /v1/trace    batch_id, or node and at → Trace
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import List, Optional


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
    """By start."""
    complete: bool = True
    """False: there are more jobs than are shown."""
