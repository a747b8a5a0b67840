"""Messages of the attempts of many jobs. Rules of bodies, instants, pages and errors: wire/__init__.py."""

from __future__ import annotations

from dataclasses import dataclass
from typing import List, Optional

from pilotage.wire.call import PERSON, ApiCall
from pilotage.wire.jobs import Selection
from pilotage.wire.limits import Cursor
from pilotage.wire.queries import PageSize


@dataclass
class AttemptsQuery(Selection):
    """A page of the selected jobs, whose attempts are listed."""

    after: Cursor = 0
    """The last job of the page before."""
    limit: PageSize = 100
    """Jobs, of which each may have several attempts."""


@dataclass
class JobAttempt:
    """One confirmed try of a job."""

    job: int
    attempt: int
    site: str
    ce: str
    started: float
    ended: Optional[float]
    outcome: str
    """The outcome as in `Attempt`: "" while it runs, "applied", or why it was not."""
    exit_code: Optional[int]
    failure: str
    wall: float
    """Seconds as usage counts them: the pilot's measurement, or else from the start to the end. 0 while it runs."""
    cpu: float
    """Seconds, as the pilot measured them."""
    processors: int
    """Cores that it held."""


@dataclass
class AttemptsPage:
    attempts: List[JobAttempt]
    """Ordered by job, then by their starts."""
    next: Optional[int] = None
    """`after` of the next page; None: this was the last."""


LIST_ATTEMPTS = ApiCall("GET", "/v1/attempts", AttemptsQuery, AttemptsPage, PERSON)
