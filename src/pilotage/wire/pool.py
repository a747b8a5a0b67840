"""Messages that list task queues and pilots. Rules of bodies, instants, pages and errors: wire/__init__.py."""

from __future__ import annotations

from dataclasses import dataclass
from typing import List, Optional

from pilotage.wire.call import PERSON, ApiCall, NoRequest
from pilotage.wire.limits import Name
from pilotage.wire.queries import PageQuery


@dataclass
class QueueSummary:
    id: int
    owner: str
    group: str
    setup: str
    cpu_time: int
    """The bucket, seconds of a reference core."""
    memory: int
    processors: int
    job_type: str
    sites: List[str]
    banned_sites: List[str]
    grid_ces: List[str]
    platforms: List[str]
    tags: List[str]
    pilot_types: List[str]
    requirements: str
    waiting: int
    priority: float
    note: str = ""
    """Why none of its jobs may start, where the policy no longer knows its group or owner."""
    wall_time: int = 0
    """Seconds by the clock that each job may take; 0: not limited by the jobs."""
    host_requirements: str = ""
    output_se: str = ""
    disk: int = 0
    """The bucket, MB of free disk; 0: none asked for."""
    pilots_waiting: int = 0
    """Pilots submitted for it that have not called home."""
    pilots_running: int = 0
    """Pilots submitted for it that run; they may serve others."""
    reason: str = ""
    """Why its jobs wait, as it was recorded last: one of `Why.reason`; empty: not yet."""
    detail: str = ""
    since: Optional[float] = None
    """When this wait began; None: no reason is recorded."""


@dataclass
class QueuesQuery(PageQuery):
    """Some of the task queues."""

    reason: Name = ""
    """Only queues whose last recorded reason it is."""


@dataclass
class QueuesPage:
    queues: List[QueueSummary]
    next: Optional[int] = None


@dataclass
class PilotSummary:
    id: int
    state: str
    stalled: bool
    site: str
    ce: str
    batch_id: str
    hostname: str
    owner: str
    """Whom it serves: empty for anybody (or not bound yet)."""
    version: str
    processors: int
    jobs: int
    """How many it holds now."""
    finished: int
    submitted: float
    started: Optional[float]
    last_seen: Optional[float]
    ended: Optional[float]
    reason: str = ""
    pilot_type: str = ""
    """private, generic or probe."""
    core_seconds: float = 0.0
    """Core-seconds of its life, as far as they are booked; for its owner and administrators."""
    payload_core_seconds: float = 0.0
    """The cores that attempts held, by the definition of costs."""
    efficiency: Optional[float] = None
    """payload_core_seconds / core_seconds; None: nothing is booked, or the pilot is another owner's."""


@dataclass
class PilotsPage:
    pilots: List[PilotSummary]
    next: Optional[int] = None


@dataclass
class WaitingJobs:
    """The waiting jobs of a group that wait for one reason."""

    reason: str
    """One of `Why.reason`, as it was recorded last; empty: not yet."""
    group: str
    queues: int
    jobs: int
    since: Optional[float] = None
    """When the first of these waits began; None: no reason is recorded."""


LIST_QUEUES = ApiCall("GET", "/v1/queues", QueuesQuery, QueuesPage, PERSON)
COUNT_WAITING = ApiCall("GET", "/v1/waiting", NoRequest, List[WaitingJobs], PERSON)
LIST_PILOTS = ApiCall("GET", "/v1/pilots", PageQuery, PilotsPage, PERSON)
