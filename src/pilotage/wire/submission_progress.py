"""Messages about submissions as wholes: how far they have come, and their limits."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, Dict, List, Optional

from pilotage.wire.call import JOBS, PERSON, ApiCall, NoRequest
from pilotage.wire.limits import NOT_NULL, Bounds, Cursor, GivenName
from pilotage.wire.queries import PageSize

MAX_PARALLEL = 1_000_000


@dataclass
class SubmissionsQuery:
    """A page of submissions, newest first."""

    after: Cursor = 0
    """The last id of the page before; 0: begin at the newest."""
    limit: PageSize = 100
    owner: Annotated[Optional[GivenName], NOT_NULL] = None


@dataclass
class SubmissionSummary:
    id: int
    owner: str
    group: str
    name: str
    """The job name, with its placeholders."""
    job_group: str
    submitted: float
    count: int
    """Accepted jobs."""
    states: Dict[str, int] = field(default_factory=dict)
    """The number of jobs in each state. Jobs that are not created yet are in none."""
    parallel: int = 0
    """The most jobs that run at once; 0: no limit."""


@dataclass
class SubmissionsPage:
    submissions: List[SubmissionSummary]
    next: Optional[int] = None


@dataclass
class FailureGroup:
    """Failed jobs with the same reason, apart from its amounts."""

    reason: str
    count: int
    job: int
    """The last of them."""
    last_line: str
    """The last line of its standard error, if that is small; "" otherwise."""


@dataclass
class SubmissionProgress:
    submission: SubmissionSummary
    ended: int
    rate: Optional[float]
    """Jobs that end in an hour, from the last ends; None: too few jobs have ended."""
    time_left: Optional[float]
    """Seconds until the last job ends at this rate; None: not known."""
    running: List[int]
    """The first jobs that run now."""
    failures: List[FailureGroup]
    failures_read: int
    """The last failed jobs that are grouped."""
    incomplete: List[int] = field(default_factory=list)
    """Done jobs among the last ended ones that lack an output, the newest first."""


@dataclass
class ParallelRequest:
    running: Annotated[int, Bounds(low=0, high=MAX_PARALLEL)]
    """0: no limit."""


LIST_SUBMISSIONS = ApiCall("GET", "/v1/submissions", SubmissionsQuery, SubmissionsPage, PERSON)
_ONE = "/v1/submissions/{submission_id}"
SHOW_PROGRESS = ApiCall("GET", _ONE + "/progress", NoRequest, SubmissionProgress, PERSON)
LIMIT_SUBMISSION = ApiCall("POST", _ONE + "/parallel", ParallelRequest, SubmissionSummary, JOBS)
