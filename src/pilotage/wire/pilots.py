"""Messages about single pilots. Rules of bodies, instants, pages and errors: wire/__init__.py.

Headers of the answer with a log: X-Pilotage-State (the pilot's state), X-Pilotage-Offset (position of the first byte).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar, Dict, List, Optional

from pilotage.wire.call import ADMINISTRATORS, PERSON, ApiCall, NoRequest
from pilotage.wire.limits import NOT_NULL, Bounds, GivenName, Id, Message, Name, Offset
from pilotage.wire.pool import PilotSummary

MAX_PILOT_IDS = 10_000
"""Pilot ids per request."""

PilotIds = Annotated[List[Id], Bounds(shortest=1, longest=MAX_PILOT_IDS)]


@dataclass
class PilotDetail:
    pilot: PilotSummary
    stamp: str
    """Its name in the batch system, with its index."""
    order: str = ""
    """The order to leave: "", drain, cancel or kill."""
    lease_until: Optional[float] = None
    """When its jobs are given to others if it is not heard."""
    job_ids: List[int] = field(default_factory=list)
    """The jobs that it has now, for administrators."""
    pilot_type: str = ""
    """private or generic, or probe."""
    queue: Optional[int] = None
    """The task queue that it was submitted for, for administrators; it may serve others."""
    queue_exists: bool = False
    """False: the queue has gone."""


@dataclass
class PilotKill:
    """End the pilots `ids`, or all live pilots of one CE."""

    __pydantic_config__: ClassVar[Dict[str, Any]] = {"extra": "forbid"}
    """A misspelt `dry_run` must not act."""

    ids: Annotated[Optional[PilotIds], NOT_NULL] = None
    ce: Annotated[Optional[GivenName], NOT_NULL] = None
    order: Name = "cancel"
    """drain: leave when the present jobs have ended | cancel: give the jobs back at the next call, and leave |
    kill: as cancel, and the batch system cancels the batch job. Pilots that have not called home are always killed."""
    dry_run: bool = False
    reason: Message = ""


@dataclass
class PilotRefusal:
    pilot: int
    message: str


@dataclass
class PilotKillResponse:
    matched: int
    """How many pilots the request names."""
    done: int
    """How many have the order now (dry run: would have it)."""
    refused: List[PilotRefusal] = field(default_factory=list)
    """The others, at most the first hundred of them."""
    not_called: int = 0
    """How many of `done` have not called home: their batch system cancels them at its next listing."""


@dataclass
class PilotLogQuery:
    """A piece of a pilot's output; without `offset` its end."""

    offset: Optional[Offset] = None


SHOW_PILOT = ApiCall("GET", "/v1/pilots/{pilot}", NoRequest, PilotDetail, PERSON)
READ_PILOT_LOG = ApiCall("GET", "/v1/pilots/{pilot}/log", PilotLogQuery, bytes, ADMINISTRATORS)
KILL_PILOTS = ApiCall("POST", "/v1/pilots/kill", PilotKill, PilotKillResponse, ADMINISTRATORS)
