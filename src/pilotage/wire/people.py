"""What people's programs and the server say to each other, under /v1.

Bodies are JSON of these dataclasses; instants are seconds since 1970 (UTC), memory is MB (2^20 bytes). Lists are paged
by key: `after` is the last id seen, `limit` at most MAX_PAGE. Every answer that is not 2xx has an `ErrorBody`
(wire/pilot.py). Requests carry `Authorization: Bearer <JSON Web Token>`.

    POST   /v1/submissions                     SubmitRequest → SubmitResponse
    POST   /v1/submissions/check               SubmitRequest → SubmissionCheck: errors and warnings, nothing is stored
    POST   /v1/submissions/open/check          OpenRequest → SubmissionCheck
    POST   /v1/submissions/open                OpenRequest → OpenSubmission: rows of parameters come in chunks
    GET    /v1/submissions/{id}                OpenSubmission: how far it is, open or closed
    GET    /v1/submissions/{id}/chunks         after, limit → ChunksPage
    PUT    /v1/submissions/{id}/chunks/{n}     JSON list of rows → ChunkResponse; n is 0, 1, 2 ...
    POST   /v1/submissions/{id}/close          CloseRequest → SubmitResponse
    GET    /v1/submissions/{id}/source         Selection as query, after, limit → SubmissionSource (its owner)
    POST   /v1/uploads                         UploadsQuestion (wire/uploads.py) → MissingUploads
    PUT    /v1/uploads                         many small files → 201
    HEAD   /v1/uploads/{sha256}                204 known to this owner | 404
    PUT    /v1/uploads/{sha256}                bytes of one input file → 201
    GET    /v1/jobs                            Selection as query, after, limit, newest → JobsPage
    GET    /v1/counts                          Selection as query → Counts
    GET    /v1/jobs/{id}                       JobDetail
    GET    /v1/jobs/{id}/events                list of JobEvent, oldest first
    GET    /v1/jobs/{id}/outputs               list of OutputFile of the applied attempt
    GET    /v1/jobs/{id}/outputs/{name}        bytes
    POST   /v1/outputs                         ArchiveRequest → tar stream of the outputs of many jobs
    GET    /v1/jobs/{id}/logs/{stream}         bytes from `offset`; while the job runs, asking makes its pilot
                                               send tails. Headers: X-Pilotage-State (job state),
                                               X-Pilotage-Offset (where these bytes begin)
    GET    /v1/jobs/{id}/why                   Why (wire/waiting.py): what it waits for
    POST   /v1/jobs/kill|reschedule|delete     ActionRequest → ActionResponse
    GET    /v1/queues | /v1/pilots | /v1/sites after, limit → QueuesPage | PilotsPage | list of SiteSummary
    GET    /v1/queues/{id}/why                 Why, of all jobs of a task queue
    GET    /v1/whoami                          Identity
    POST   /v1/tokens                          TokenRequest → TokenResponse (administrators)
    POST   /v1/tokens/refresh                  → TokenResponse, for whom the current token is, with its lifetime
    POST   /v1/tokens/home                     → 204, without token: the token file of the server's home is good again
    GET    /v1/policy                          PolicyDocument (administrators, as all of the policy)
    PUT    /v1/policy                          PolicyChange → PolicyDocument; 409 if not `expect` is in force
    GET    /v1/policy/versions                 after, limit → PolicyVersionsPage, newest first
    GET    /v1/policy/versions/{version}       PolicyDocument of that version
    POST   /v1/policy/rollback                 PolicyRollback → PolicyDocument, a new version with an old text
    POST   /v1/shutdown                        Shutdown → 202 (administrators)
    GET    /live | /ready | /metrics           without token
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar, Dict, List, Optional

from pilotage.wire.governing import PilotsLeft, Stranded
from pilotage.wire.limits import (
    NOT_NULL,
    Count,
    Cursor,
    Digest,
    FileName,
    GivenName,
    Id,
    Instant,
    Limit,
    Name,
    Seconds,
    Words,
)

MAX_PAGE = 1000
MAX_JOBS_PER_SUBMISSION = 100_000
"""Of a submission that is one request; one in chunks may have MAX_JOBS_IN_CHUNKS."""
MAX_JOBS_IN_CHUNKS = 1_000_000_000
MAX_CHUNK_ROWS = 5000
MAX_CHUNK_BYTES = 512 * 1024
MAX_CHUNK_FILES = 500
"""Input files that the rows of one chunk may name."""
MAX_PAGE_BYTES = 1024 * 1024
"""A page ends early, with the cursor to go on, when it has about so many bytes."""
MAX_IDS = 100_000
"""Jobs that one selection may name."""
MAX_INPUTS = 10_000
"""Files that one submission may send along."""
MAX_NAMES = 1000
"""Parameters that one submission may have."""
MAX_POLICY = 1_000_000
"""Characters of a policy."""
MAX_DESCRIPTION = 8_000_000
"""Characters of a description with its parameters, as JDL or YAML; what one job may have of it is less."""

DescriptionText = Annotated[str, Limit(longest=MAX_DESCRIPTION)]
Description = Annotated[Dict[str, Any], Limit(longest=MAX_NAMES)]
ParameterNames = Annotated[List[Name], Limit(longest=MAX_NAMES)]
RowValues = Annotated[List[Any], Limit(longest=MAX_NAMES)]
JobIds = Annotated[List[Id], Limit(shortest=1, longest=MAX_IDS)]
States = Annotated[List[GivenName], Limit(shortest=1, longest=100)]
PolicyText = Annotated[str, Limit(longest=MAX_POLICY)]


def rows_of_a_chunk(files: int) -> int:
    """How many rows a chunk has at most, each of which names so many input files of its own."""
    return max(1, MAX_CHUNK_FILES // files) if files else MAX_CHUNK_ROWS


@dataclass
class Parameters:
    """The values of a parametric submission: row k binds `names` to `rows[k]`; the unnamed parameter is ""."""

    names: ParameterNames = field(default_factory=list)
    rows: Annotated[List[RowValues], Limit(longest=MAX_DESCRIPTION)] = field(default_factory=list)


@dataclass
class UploadedInput:
    """An input of mode `copy` that was put to /v1/uploads before."""

    name: FileName
    """Relative path in the payload's folder, as in the description."""
    digest: Digest
    size: Count
    executable: bool = False


@dataclass
class JobValues:
    job: int
    values: List[Any]
    """One for each name of the submission's parameters."""


@dataclass
class SubmissionSource:
    """What a submission was made of."""

    submission: int
    group: str
    description: Dict[str, Any]
    """With its placeholders."""
    names: List[str]
    inputs: List[UploadedInput]
    """The files that were sent for all its jobs."""
    jobs: List[JobValues]
    next: Optional[int] = None


@dataclass
class SubmitRequest:
    """Exactly one of `description` (snake_case names), `jdl`, `yaml` says what to run."""

    description: Optional[Description] = None
    jdl: Optional[DescriptionText] = None
    yaml: Optional[DescriptionText] = None
    parameters: Optional[Parameters] = None
    """Only with `description`; JDL and YAML carry their own."""
    inputs: Annotated[List[UploadedInput], Limit(longest=MAX_INPUTS)] = field(default_factory=list)
    """One for every `copy` input of the description; a folder is one entry for each of its files."""
    group: Name = ""
    """Empty: the group of the token."""
    key: Name = ""
    """Idempotency key: the same owner and key again gets the first answer again, and makes no more jobs."""


@dataclass
class OpenRequest:
    """A submission whose rows of parameters come in chunks. Jobs of an accepted chunk may run at once."""

    description: Description
    """Without parameters of its own."""
    names: ParameterNames
    """What each row has a value for; the unnamed parameter is ""."""
    key: Name
    """The same owner and key again opens the same submission, to go on with it."""
    inputs: Annotated[List[UploadedInput], Limit(longest=MAX_INPUTS)] = field(default_factory=list)
    group: Name = ""
    expected: Optional[Annotated[int, Limit(low=1, high=MAX_JOBS_IN_CHUNKS)]] = None
    """At most so many rows will come: their ids follow one another, and `%n` has their width. Needed for `%n`."""


@dataclass
class OpenSubmission:
    submission: int
    queue: int
    open: bool
    """False: no more rows are taken."""
    names: List[str]
    chunks: int
    """How many were accepted: the number of the next one."""
    count: int
    """Rows in them; each is a job."""
    expected: Optional[int] = None
    warnings: List[str] = field(default_factory=list)


@dataclass
class ChunkSummary:
    number: int
    count: int
    digest: str
    """SHA-256 of its rows as compact JSON in UTF-8."""


@dataclass
class ChunksPage:
    chunks: List[ChunkSummary]
    next: Optional[int] = None


@dataclass
class ChunkResponse:
    """The jobs of a chunk wait in their queue. The same number and rows again give the same answer."""

    number: int
    first: int
    """Its jobs are first, first + 1 ..."""
    count: int


@dataclass
class CloseRequest:
    count: Count
    """All rows that were sent."""


@dataclass
class SubmitResponse:
    submission: int
    first: int
    """The jobs are first, first + 1 ... last; of rows in chunks without `expected` others' may lie between.
    Where several servers took chunks, their ids are in no order."""
    last: int
    count: int
    queue: int
    warnings: List[str] = field(default_factory=list)


@dataclass
class SubmissionCheck:
    """What a submission would be told: its errors come as they would then."""

    count: int
    """Jobs; of rows in chunks at most so many, 0 if that was not said."""
    warnings: List[str] = field(default_factory=list)


@dataclass
class Selection:
    """Which jobs: all conditions together. A selection without conditions means all that one may see.

    None means that a condition was not given. A condition that is given and empty (0, "", []) is refused, and so is
    `null` in a body: it would otherwise select everything.
    """

    __pydantic_config__: ClassVar[Dict[str, Any]] = {"extra": "forbid"}
    """A condition that this server does not know is refused: without it more jobs would be selected."""

    ids: Annotated[Optional[JobIds], NOT_NULL] = None
    submission: Annotated[Optional[Id], NOT_NULL] = None
    states: Annotated[Optional[States], NOT_NULL] = None
    owner: Annotated[Optional[GivenName], NOT_NULL] = None
    group: Annotated[Optional[GivenName], NOT_NULL] = None
    job_group: Annotated[Optional[GivenName], NOT_NULL] = None
    site: Annotated[Optional[GivenName], NOT_NULL] = None
    name: Annotated[Optional[GivenName], NOT_NULL] = None
    ended_since: Annotated[Optional[Instant], NOT_NULL] = None
    ended_before: Annotated[Optional[Instant], NOT_NULL] = None
    outputs_incomplete: Annotated[Optional[bool], NOT_NULL] = None
    """Only jobs of which `JobSummary.outputs_incomplete` is so."""


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
    """"" while it runs, "applied", or why it was not: "lease over", "released", "superseded", "killed" ..."""
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
class ArchiveRequest:
    __pydantic_config__: ClassVar[Dict[str, Any]] = {"extra": "forbid"}

    selection: Selection
    after: Cursor = 0
    """Only jobs with ids above it: where a broken stream goes on."""
    names_only: bool = False
    """Without the files."""


ARCHIVE_OUTPUTS = "PILOTAGE.outputs"
"""The extended header of a job's folder in the tar stream; its value is the JSON of an ArchivedJob.

The stream has the jobs by rising id, each as its files `<id>/<name>` and then the folder `<id>/`. It ends with two
blocks of zeros; without them it is not complete.
"""


@dataclass
class ArchivedJob:
    id: int
    state: str
    outputs: List[OutputFile]
    lost: List[str] = field(default_factory=list)
    """Outputs that the server could not read to the end: if they are in the stream, their bytes are worthless."""


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
    """What happened: submitted, offered, confirmed, finished, released, lease-over, stalled, killed ..."""
    old: str
    new: str
    epoch: int
    actor: str
    detail: str = ""


@dataclass
class ActionRequest:
    __pydantic_config__: ClassVar[Dict[str, Any]] = {"extra": "forbid"}
    """A misspelt `dry_run` must not act."""

    selection: Selection
    dry_run: bool = False
    reason: Words = ""


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


@dataclass
class PilotsPage:
    pilots: List[PilotSummary]
    next: Optional[int] = None


@dataclass
class SiteSummary:
    name: str
    ces: List[str]
    pilots: Dict[str, int]
    """Live pilots by state."""
    running: int
    """Jobs held there now."""
    waiting: int
    """Waiting jobs whose task queue may run there by its site lists."""


@dataclass
class Identity:
    user: str
    group: str
    properties: List[str]
    expires: float
    server_version: str = ""
    instance: str = ""


@dataclass
class TokenRequest:
    user: Name
    group: Name = ""
    """Empty: the user's first group in the policy."""
    lifetime: Seconds = 43200.0


@dataclass
class TokenResponse:
    token: str
    expires: float
    user: str
    group: str


@dataclass
class PolicyDocument:
    version: int
    text: str
    applied_at: float
    applied_by: str
    warnings: List[str] = field(default_factory=list)
    reason: str = ""
    properties: List[str] = field(default_factory=list)
    """What the rule of the draw makes of shares: no fault, but to be known."""
    stranded: List[Stranded] = field(default_factory=list)
    """Of a change: whose waiting jobs it does not let start, those of most jobs."""
    stranded_jobs: int = 0
    """All such jobs."""
    pilots_left: List[PilotsLeft] = field(default_factory=list)


@dataclass
class PolicyChange:
    text: PolicyText
    dry_run: bool = False
    reason: Words = ""
    expect: Optional[Id] = None
    """Refuse it unless this version is in force: two administrators do not undo each other's work unseen."""


@dataclass
class Shutdown:
    pilots: Name = "keep"
    """drain: jobs that run end first, no new ones start | keep: pilots go on and find the next server |
    cancel: pilots are ended, their jobs go back to the queue"""
