"""Messages about requests. Rules of bodies, instants, pages and errors: wire/__init__.py."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, Any, Dict, List, Optional, Union

from pilotage.wire.call import DATA, PERSON, PRODUCTION, ApiCall, NoRequest
from pilotage.wire.limits import MAX_INT64, Bounds, Count, Cursor, GivenName, Id, Message, Name, Seconds
from pilotage.wire.queries import PageQuery, PageSize
from pilotage.wire.resubmissions import ResubmissionCount, Resubmissions
from pilotage.wire.submissions import MAX_INPUTS, UploadedInput

MAX_FIELDS = 1000
SpecificationBody = Annotated[Dict[Name, Any], Bounds(longest=MAX_FIELDS)]
ProgramInputs = Annotated[List[UploadedInput], Bounds(longest=MAX_INPUTS)]
SiteNames = Annotated[List[GivenName], Bounds(longest=10_000)]
Priority = Annotated[int, Bounds(low=0, high=999_999)]


@dataclass
class RequestSubmission:
    """A new request: the fields of docs/reference/requests.md."""

    specification: SpecificationBody
    inputs: Annotated[Dict[Name, ProgramInputs], Bounds(longest=MAX_FIELDS)] = field(default_factory=dict)
    """The files that were uploaded for each program, by step: NAME, and NAME.merge for the program of its merge."""
    key: Name = ""
    """Idempotency key: the same owner and key again gets the first request again."""
    confirmed: bool = False
    """Accept a request with very many jobs."""
    strict: bool = False
    """Refuse a request with data at none of its sites."""
    origin: Optional[Id] = None
    """The request that it is a clone of."""


@dataclass
class RequestCheck:
    """The steps and the size of a request. Errors are reported as for a real submission."""

    jobs: int
    """Estimated, without merges and steps that read the output of others."""
    group: str
    steps: List[str] = field(default_factory=list)
    """The names of its steps, merges included."""
    input_datasets: int = 0
    input_files: int = 0
    """Files of the data sets that it reads, blocks included that its lists leave out."""
    input_events: int = 0
    input_size: int = 0
    """Bytes of these files."""
    core_seconds: Optional[float] = None
    """Seconds of reference cores, as `jobs`; None: no step with a known number of events gives `time_per_event`."""
    output_size: Optional[int] = None
    """Bytes, as `jobs`; None: no step with a known number of events gives `size_per_event`."""
    warnings: List[str] = field(default_factory=list)


@dataclass
class RequestSummary:
    id: int
    name: str
    owner: str
    group: str
    priority: int
    team: str
    campaign: str
    state: str
    reason: str
    created: float
    changed: float
    elements: int = 0
    ended_elements: int = 0
    jobs: int = 0
    """Estimated, until all elements are split."""
    done_jobs: int = 0
    failed_jobs: int = 0
    """Failed for good."""
    failed_elements: int = 0
    """With failed jobs, or not split."""
    canceled_elements: int = 0
    """Ended by an abort or a force-complete."""
    paused: bool = False
    """Agents get none of its elements, and none of its made jobs are released."""


@dataclass
class ResubmissionAccepted(RequestSummary):
    """A new request of the failed parts of another one."""

    parts: int = 0
    """The failed parts that it makes again: jobs that failed for good, and elements that could not be split."""
    left_out: List[ResubmissionCount] = field(default_factory=list)


@dataclass
class RequestAccepted:
    request: RequestSummary
    jobs: int
    """Estimated, without merges and steps that read the output of others."""
    warnings: List[str] = field(default_factory=list)


@dataclass
class RequestsPage:
    requests: List[RequestSummary]
    next: Optional[int] = None
    """`before` of the next page."""


@dataclass
class RequestStep:
    """A step of a request, and how far its work has come."""

    position: int
    name: str
    type: str
    start_policy: str
    algorithm: str
    input: str
    """The data set; empty: it generates events."""
    output: str
    """The data set; empty: it writes none."""
    elements: Dict[str, int] = field(default_factory=dict)
    """The number of elements in each state."""
    jobs: Dict[str, int] = field(default_factory=dict)
    """Jobs that are not in the pool, or have ended, by state: made, cooloff, done, exhausted, canceled."""
    pool: Dict[str, int] = field(default_factory=dict)
    """Jobs in the pool by state, such as Waiting or Running."""
    estimated_jobs: int = 0
    """The expected jobs of the elements that are not split."""
    events: int = 0
    """Events of all elements, as far as known."""
    done_events: int = 0
    files: int = 0
    """Input files of all elements."""
    done_files: int = 0
    closed: bool = False
    """No more elements will come."""
    ended: bool = False
    complete: int = 0
    """Percent: how much of its elements has ended, on average."""
    success: int = 0
    """Percent: how much of its elements is done, on average."""
    logs: str = ""
    """The data set of the logs of its jobs; empty: they are not stored."""


@dataclass
class RequestSite:
    """The jobs of a request at one site."""

    site: str
    """Empty: not decided yet."""
    pending: int = 0
    running: int = 0
    done: int = 0
    failed: int = 0
    """Failed for good, or in a pause before the next try."""


@dataclass
class RequestError:
    """Jobs whose last try failed alike, or elements that could not be split, with one of them as an example."""

    step: str
    exit_code: Optional[int]
    failure: str
    count: int
    exhausted: int
    """The jobs or elements of `count` that have failed for good."""
    job: Optional[int]
    message: str
    stderr: str = ""
    """The end of the job's standard error, if the server has it."""
    element: Optional[int] = None
    """The example of elements that could not be split; `count` is their number. None: of jobs."""


@dataclass
class RequestDetail:
    request: RequestSummary
    sites: List[str]
    """["*"]: all sites of the policy."""
    banned_sites: List[str]
    trust_input: bool
    trust_pileup: bool
    open_until: Optional[float] = None
    origin: Optional[int] = None
    """The request that it resubmits, or is a clone of."""
    propagating: bool = False
    """A change has not reached all elements and jobs yet."""
    steps: List[RequestStep] = field(default_factory=list)
    places: List[RequestSite] = field(default_factory=list)
    errors: List[RequestError] = field(default_factory=list)
    estimated_end: Optional[float] = None
    """None: not enough jobs have ended, or all have."""
    resubmitted: Optional[Resubmissions] = None
    """None: it has not ended, or no later request makes its failed parts again."""


@dataclass
class RequestElement:
    """An element: a piece of a request, of which an agent makes jobs."""

    id: int
    step: str
    state: str
    agent: str
    """The name of the agent that has it or made its jobs; empty: none."""
    site: str
    """For which an agent got it; empty: none yet."""
    jobs: int
    """Estimated, until it is split."""
    jobs_done: int
    jobs_failed: int
    """For good."""
    jobs_canceled: int
    events: int
    files: int
    created: float
    changed: float
    """When its state changed last."""
    reason: str
    """Why it is in this state, if that needs a reason."""


@dataclass
class ElementsPage:
    elements: List[RequestElement]
    next: Optional[int] = None
    """`after` of the next page."""


@dataclass
class RequestEvent:
    id: int
    at: float
    actor: str
    kind: str
    old: str = ""
    new: str = ""
    detail: str = ""


@dataclass
class RequestHistory:
    events: List[RequestEvent]
    next: Optional[int] = None


StepValues = Annotated[Dict[Name, Union[bool, Count, Seconds, Name]], Bounds(longest=50)]
"""Values as in a file of a request: numbers, `2 GB`, `90 min`."""


@dataclass
class StepChange:
    """Other splitting and resources of a request's steps; absent values are as before."""

    step: Name = ""
    """Only this step; empty: each step of the request's file."""
    resources: StepValues = field(default_factory=dict)
    """`processors`, `memory`, `disk`, `wall_time` and `cpu_time`."""
    splitting: StepValues = field(default_factory=dict)
    """Parameters of the step's algorithm."""


@dataclass
class RequestClone:
    """Submit a request again, with some facts changed. Its output data sets get new names."""

    name: Name = ""
    """Empty: the same name."""
    team: Name = ""
    """Empty: the same team."""
    campaign: Optional[Name] = None
    priority: Optional[Priority] = None
    key: Name = ""
    """Idempotency key, as of a submission."""
    inputs: ProgramInputs = field(default_factory=list)
    """Uploaded files that replace the files with their names in the programs of all steps."""
    steps: StepChange = field(default_factory=StepChange)


@dataclass
class RequestResubmission:
    """Make the jobs of an ended request again that have failed for good, and its elements that could not be split."""

    key: Name = ""
    """Idempotency key, as of a submission."""
    inputs: ProgramInputs = field(default_factory=list)
    """Uploaded files that replace the files with their names in the programs of all steps."""
    steps: StepChange = field(default_factory=StepChange)


@dataclass
class RequestChange:
    """Why a request is changed."""

    reason: Message = ""


@dataclass
class RequestPriority:
    priority: Priority
    reason: Message = ""


@dataclass
class RequestSites:
    """New lists of sites; absent: as before."""

    sites: Optional[SiteNames] = None
    """Empty: all sites."""
    banned_sites: Optional[SiteNames] = None
    trust_input: Optional[bool] = None
    trust_pileup: Optional[bool] = None
    reason: Message = ""


@dataclass
class RequestAssignment:
    """Assign a request to a team of agents, with lists of sites; absent facts are as before.

    Splitting and resources can change before the request has work.
    """

    team: Name = ""
    """Empty: the team that it has."""
    sites: Optional[SiteNames] = None
    banned_sites: Optional[SiteNames] = None
    trust_input: Optional[bool] = None
    trust_pileup: Optional[bool] = None
    reason: Message = ""
    steps: StepChange = field(default_factory=StepChange)


StateNames = Annotated[List[GivenName], Bounds(longest=50)]


@dataclass
class RequestsQuery:
    """A page of the requests, newest first."""

    states: Optional[StateNames] = None
    owner: Name = ""
    team: Name = ""
    campaign: Name = ""
    name: Name = ""
    before: Cursor = MAX_INT64
    """The last id of the page before."""
    limit: PageSize = 100


@dataclass
class ElementsQuery(PageQuery):
    """Elements of a request."""

    states: Optional[StateNames] = None
    step: Name = ""
    unchanged: Seconds = 0.0
    """The least number of seconds in their state."""


SUBMIT_REQUEST = ApiCall("POST", "/v1/requests", RequestSubmission, RequestAccepted, DATA, repeatable=True)
CHECK_REQUEST = ApiCall("POST", "/v1/requests/check", RequestSubmission, RequestCheck, DATA)
LIST_REQUESTS = ApiCall("GET", "/v1/requests", RequestsQuery, RequestsPage, PERSON)
_ONE = "/v1/requests/{request}"
SHOW_REQUEST = ApiCall("GET", _ONE, NoRequest, RequestDetail, PERSON)
SHOW_HISTORY = ApiCall("GET", _ONE + "/history", PageQuery, RequestHistory, PERSON)
LIST_ELEMENTS = ApiCall("GET", _ONE + "/elements", ElementsQuery, ElementsPage, PERSON)
APPROVE_REQUEST = ApiCall("POST", _ONE + "/approve", RequestChange, RequestSummary, PRODUCTION)
REJECT_REQUEST = ApiCall("POST", _ONE + "/reject", RequestChange, RequestSummary, PRODUCTION)
PAUSE_REQUEST = ApiCall("POST", _ONE + "/pause", RequestChange, RequestSummary, DATA)
RESUME_REQUEST = ApiCall("POST", _ONE + "/resume", RequestChange, RequestSummary, DATA)
ABORT_REQUEST = ApiCall("POST", _ONE + "/abort", RequestChange, RequestSummary, DATA)
FORCE_COMPLETE_REQUEST = ApiCall("POST", _ONE + "/force-complete", RequestChange, RequestSummary, DATA)
CLOSE_OUT_REQUEST = ApiCall("POST", _ONE + "/close-out", RequestChange, RequestSummary, PRODUCTION)
ANNOUNCE_REQUEST = ApiCall("POST", _ONE + "/announce", RequestChange, RequestSummary, PRODUCTION)
ARCHIVE_REQUEST = ApiCall("POST", _ONE + "/archive", RequestChange, RequestSummary, DATA)
ASSIGN_REQUEST = ApiCall("POST", _ONE + "/assign", RequestAssignment, RequestSummary, DATA)
SET_REQUEST_PRIORITY = ApiCall("POST", _ONE + "/priority", RequestPriority, RequestSummary, DATA)
SET_REQUEST_SITES = ApiCall("POST", _ONE + "/sites", RequestSites, RequestSummary, DATA)
CLONE_REQUEST = ApiCall("POST", _ONE + "/clone", RequestClone, RequestSummary, DATA)
RESUBMIT_REQUEST = ApiCall("POST", _ONE + "/resubmit", RequestResubmission, ResubmissionAccepted, DATA)
