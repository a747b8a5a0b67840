"""Messages about the jobs that have ended, for a record of the server's work. Rules of bodies: wire/__init__.py."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, List, Optional

from pilotage.wire.call import ADMINISTRATORS, ApiCall
from pilotage.wire.limits import MAX_INSTANT, MAX_PAGE, Bounds, Cursor
from pilotage.wire.queries import PageSize


@dataclass
class EndedJobFacts:
    """A job that is final, with its demands."""

    id: int
    state: str
    owner: str
    group: str
    submitted: float
    ended: float
    processors: int
    """Cores that its payload had, or that it asked for."""
    memory: int
    """MB; 0: it asked for none."""
    wall_time: float
    """Seconds that it asked for; 0: none."""
    cpu_time: float
    """Seconds of a reference core that it asked for; 0: none."""
    run: Optional[float]
    """Seconds of the attempt whose result was applied; None: there was no such attempt, or it is deleted."""


@dataclass
class EndedJobsQuery:
    """A page of ended jobs. The next page has the values of `next`."""

    since: Annotated[
        float, Bounds(low=0, high=MAX_INSTANT), "only jobs that ended at this instant or later"
    ] = 0.0
    after: Cursor = 0
    """No job that ended at `since` and has this id or a smaller one."""
    limit: PageSize = MAX_PAGE


@dataclass
class EndedJobsPosition:
    """The end and the id of the last job of a page."""

    since: float
    after: int


@dataclass
class EndedJobsPage:
    jobs: List[EndedJobFacts] = field(default_factory=list)
    """In the order of their end."""
    next: Optional[EndedJobsPosition] = None
    whole_since: float = 0.0
    """Jobs that ended before may be deleted by the policy's retention; 0: none was."""


LIST_ENDED_JOBS = ApiCall("GET", "/v1/history/jobs", EndedJobsQuery, EndedJobsPage, ADMINISTRATORS)
