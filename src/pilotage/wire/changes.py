"""Messages of the change feed: what has become of jobs, submissions and requests, in the order of commits.

A cursor stands for everything told before it. Whoever keeps the last cursor misses no change and gets none twice, also
over restarts of the server and from another server of the pool.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, List, Optional

from pilotage.wire.call import PERSON, ApiCall
from pilotage.wire.limits import NOT_NULL, Bounds, GivenName, Id

MAX_WAIT = 120.0
MAX_CHANGES = 1000


@dataclass
class ChangesQuery:
    """Changes after a cursor, of jobs that the caller may see. All conditions must hold."""

    after: Annotated[str, Bounds(longest=200)] = ""
    """The cursor of the last page; empty: from now on."""
    wait: Annotated[float, Bounds(low=0, high=MAX_WAIT)] = 0.0
    """Seconds to wait for a change if there is none."""
    limit: Annotated[int, Bounds(low=1, high=MAX_CHANGES)] = MAX_CHANGES
    submission: Annotated[Optional[Id], NOT_NULL] = None
    """Only this submission and its jobs."""
    owner: Annotated[Optional[GivenName], NOT_NULL] = None
    group: Annotated[Optional[GivenName], NOT_NULL] = None


@dataclass
class Change:
    """A job, submission or request has got a state."""

    kind: str
    """job, submission or request."""
    id: int
    state: str
    """Of a submission: of its new jobs, which come into being with it and have no change of their own."""
    at: float
    submission: int = 0
    """Of a job."""
    epoch: int = 0
    """Of a job: the number of its assignments to pilots."""
    exit_code: Optional[int] = None
    """Of a job, if it is still in this state."""
    jobs: int = 0
    """Of a submission: its new jobs."""
    first: int = 0
    """Of a submission: the first of its new jobs."""


@dataclass
class ChangesPage:
    changes: List[Change]
    cursor: str
    """For the next page."""


READ_CHANGES = ApiCall("GET", "/v1/changes", ChangesQuery, ChangesPage, PERSON)
