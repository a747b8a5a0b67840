"""Messages of the change feed: changes of jobs, submissions and requests, in the order of commits.

A cursor stands for everything told before it. A client that keeps the last cursor misses no change and gets none twice.
It holds after a restart of the server too, and at another server of the pool.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, List, Optional

from pilotage.wire.call import PERSON, ApiCall
from pilotage.wire.limits import LONGEST_POLL, NOT_NULL, Bounds, GivenName, Id

MAX_CHANGES = 1000


@dataclass
class ChangesQuery:
    """Changes after a cursor, of jobs that the caller may see. All conditions must hold."""

    after: Annotated[str, Bounds(longest=200)] = ""
    """The cursor of the last page; empty: from now on."""
    wait: Annotated[float, Bounds(low=0, high=LONGEST_POLL)] = 0.0
    """Seconds to wait for a change if there is none."""
    limit: Annotated[int, Bounds(low=1, high=MAX_CHANGES)] = MAX_CHANGES
    submission: Annotated[Optional[Id], NOT_NULL] = None
    """Only this submission and its jobs."""
    owner: Annotated[Optional[GivenName], NOT_NULL] = None
    group: Annotated[Optional[GivenName], NOT_NULL] = None


@dataclass
class FeedChange:
    """A job, submission or request has got a state."""

    kind: str
    """job, submission or request."""
    id: int
    state: str
    """A submission tells that of its new jobs, which have no change of their own."""
    at: float
    submission: int = 0
    """The submission of a job."""
    epoch: int = 0
    """How often a job was assigned to a pilot."""
    exit_code: Optional[int] = None
    """Known of a job that is still in this state."""
    jobs: int = 0
    """The number of new jobs of a submission."""
    first: int = 0
    """The first new job of a submission."""


@dataclass
class ChangesPage:
    changes: List[FeedChange]
    cursor: str
    """For the next page."""


READ_CHANGES = ApiCall("GET", "/v1/changes", ChangesQuery, ChangesPage, PERSON)
