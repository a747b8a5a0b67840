"""Messages of jobs. Rules of bodies, instants, pages and errors: wire/__init__.py.

A request for a stream makes the pilot of a running job send tails. Headers of the answer: X-Pilotage-State (job state),
X-Pilotage-Offset (position of the first byte).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar, Dict, List, Optional

from pilotage.wire.call import JOBS, PERSON, ApiCall, NoRequest
from pilotage.wire.limits import (
    NOT_NULL,
    Bounds,
    Cursor,
    GivenName,
    Id,
    Instant,
    Int32,
    JobName,
    Message,
    Offset,
)
from pilotage.wire.payload_use import JobUse
from pilotage.wire.queries import PageSize

MAX_IDS = 100_000
"""Job ids per selection."""

JobIds = Annotated[List[Id], Bounds(shortest=1, longest=MAX_IDS)]

States = Annotated[List[GivenName], Bounds(shortest=1, longest=100)]


@dataclass
class Selection:
    """A set of jobs: all conditions must hold. Without conditions, all jobs visible to the caller.

    None means that a condition was not given. A condition that is given and empty (0, "", []) is refused, and so is
    `null` in a body: it would otherwise select everything.
    """

    __pydantic_config__: ClassVar[Dict[str, Any]] = {"extra": "forbid"}
    """Unknown conditions are refused: ignoring one would select more jobs."""

    ids: Annotated[Optional[JobIds], NOT_NULL] = None
    submission: Annotated[Optional[Id], NOT_NULL] = None
    states: Annotated[Optional[States], NOT_NULL] = None
    owner: Annotated[Optional[GivenName], NOT_NULL] = None
    group: Annotated[Optional[GivenName], NOT_NULL] = None
    job_group: Annotated[Optional[GivenName], NOT_NULL] = None
    site: Annotated[Optional[GivenName], NOT_NULL] = None
    name: Annotated[Optional[JobName], NOT_NULL] = None
    ended_since: Annotated[Optional[Instant], NOT_NULL] = None
    ended_before: Annotated[Optional[Instant], NOT_NULL] = None
    outputs_incomplete: Annotated[Optional[bool], NOT_NULL] = None
    """Only jobs of which `JobSummary.outputs_incomplete` is so."""
    request: Annotated[Optional[Id], NOT_NULL] = None
    """Jobs that work for this request."""
    for_request: Annotated[Optional[bool], NOT_NULL] = None
    """Only jobs that work for a request, or only the others."""


@dataclass
class ListedJobs(Selection):
    """The selection of a list. No change takes it: a pattern may choose more jobs than its writer thought of."""

    name_pattern: Annotated[Optional[JobName], NOT_NULL] = None
    """Jobs with a name that fits: `*` stands for any text, `?` for any one character. Case counts."""

    @staticmethod
    def by(selection: Selection) -> Selection:
        """The jobs that a person means by these conditions in a list: `*` and `?` in a name make it a pattern."""
        if selection.name is None or not {"*", "?"} & set(selection.name):
            return selection
        return ListedJobs(**{**vars(selection), "name": None, "name_pattern": selection.name})


@dataclass
class JobSummary:
    id: int
    submission: int
    state: str
    reason: str
    owner: str
    group: str
    name: str
    job_group: str
    job_type: str
    user_priority: int
    queue: int
    epoch: int
    attempt: int
    failures: int
    site: str
    ce: str
    pilot: Optional[int]
    hostname: str
    exit_code: Optional[int]
    submitted: float
    started: Optional[float]
    ended: Optional[float]
    outputs_incomplete: bool = False
    """The job is Done or Failed, and an output pattern matched nothing or a matching file was not stored.
    `JobDetail` names them; `reason` tells the first of them of a job that is Done."""
    parameters: Dict[str, Any] = field(default_factory=dict)
    """This job's values by the names of its submission's parameters; the unnamed one is ""."""
    use: Optional[JobUse] = None
    """The use of a job that runs; None: it does not run, or its pilot has told nothing yet."""


@dataclass
class JobsPage:
    jobs: List[JobSummary]
    next: Optional[int] = None
    """Give it as `after` for the next page; None: this was the last."""


@dataclass
class Attempt:
    """One confirmed try."""

    epoch: int
    attempt: int
    pilot: int
    site: str
    ce: str
    hostname: str
    started: float
    ended: Optional[float]
    outcome: str
    """"" while it runs, "applied", or why it was not: "lease over", "released", "superseded", "killed" ...; of one
    whose payload has not started "taken ahead" or "given back before its start", without any time."""
    exit_code: Optional[int] = None
    failure: str = ""
    message: str = ""
    wall: float = 0.0
    cpu: float = 0.0
    max_rss: int = 0
    processors: int = 1


@dataclass
class OutputFile:
    name: str
    size: int


@dataclass
class RefusedOutputFile:
    name: str
    reason: str


@dataclass
class JobDetail:
    job: JobSummary
    description: Dict[str, Any]
    """With the parameters of this job filled in. Others than the owner see no values of its environment."""
    attempts: List[Attempt]
    outputs: List[OutputFile]
    missing_outputs: List[str] = field(default_factory=list)
    """Output patterns that matched no file."""
    refused_outputs: List[RefusedOutputFile] = field(default_factory=list)
    """Files that matched an output pattern and were not stored."""
    parameters: Dict[str, Any] = field(default_factory=dict)
    """This job's values by the names of its submission's parameters; the unnamed one is ""."""


@dataclass
class Counts:
    states: Dict[str, int]
    total: int
    final: int


@dataclass
class JobEvent:
    at: float
    kind: str
    """One of submitted, offered, confirmed, finished, released, lease-over, stalled, killed ..."""
    old: str
    new: str
    epoch: int
    actor: str
    detail: str = ""


UserPriority = Annotated[int, Bounds(low=0, high=10)]


@dataclass
class ActionRequest:
    __pydantic_config__: ClassVar[Dict[str, Any]] = {"extra": "forbid"}
    """A misspelt `dry_run` must not act."""

    selection: Selection
    dry_run: bool = False
    reason: Message = ""
    priority: Annotated[Optional[UserPriority], NOT_NULL] = None
    """The UserPriority that the verb `priority` gives; other verbs have none."""

    def __post_init__(self) -> None:
        if isinstance(self.selection, ListedJobs):
            raise TypeError("the selection of a list cannot choose jobs to change")


@dataclass
class Refusal:
    job: int
    message: str


@dataclass
class ActionResponse:
    matched: int
    """How many jobs the selection names."""
    done: int
    """How many were (dry run: would be) changed; the others are in `refused`, the first hundred of them."""
    refused: List[Refusal] = field(default_factory=list)
    skipped: int = 0
    """Dry run of a kill: Blocked jobs that would be Skipped, since they need one of these jobs to be Done."""


@dataclass
class JobsQuery(ListedJobs):
    """A page of the selected jobs."""

    after: Cursor = 0
    limit: PageSize = 100
    newest: bool = False
    """Newest first: by falling id."""


@dataclass
class LogQuery:
    """A piece of a job's output."""

    offset: Offset = 0
    attempt: Int32 = 0
    """0: the last one."""


LIST_JOBS = ApiCall("GET", "/v1/jobs", JobsQuery, JobsPage, PERSON)
COUNT_JOBS = ApiCall("GET", "/v1/counts", ListedJobs, Counts, PERSON)
SHOW_JOB = ApiCall("GET", "/v1/jobs/{job}", NoRequest, JobDetail, PERSON)
LIST_EVENTS = ApiCall("GET", "/v1/jobs/{job}/events", NoRequest, List[JobEvent], PERSON)
READ_LOG = ApiCall("GET", "/v1/jobs/{job}/logs/{stream}", LogQuery, bytes, PERSON)
LIST_OUTPUTS = ApiCall("GET", "/v1/jobs/{job}/outputs", NoRequest, List[OutputFile], PERSON)
READ_OUTPUT = ApiCall("GET", "/v1/jobs/{job}/outputs/{name:path}", NoRequest, bytes, PERSON)
ACT_ON_JOBS = ApiCall("POST", "/v1/jobs/{verb}", ActionRequest, ActionResponse, JOBS)
