"""Messages of submissions. Rules of bodies, instants, pages and errors: wire/__init__.py."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, Any, Dict, List, Optional

from pilotage.wire.call import PERSON, USER, ApiCall, NoRequest
from pilotage.wire.jobs import Selection
from pilotage.wire.limits import MAX_INT32, MAX_PAGE, Bounds, Count, Cursor, Digest, FileName, Name
from pilotage.wire.queries import PageSize

MAX_JOBS_PER_SUBMISSION = 100_000
"""Limit for a submission in one request; MAX_JOBS_IN_CHUNKS applies to submissions in chunks."""

MAX_JOBS_IN_CHUNKS = 1_000_000_000

MAX_CHUNK_ROWS = 5000

MAX_CHUNK_BYTES = 512 * 1024

MAX_CHUNK_FILES = 500
"""Input files that the rows of one chunk may name."""

MAX_INPUTS = 10_000
"""Input files per submission."""

MAX_NAMES = 1000
"""Parameters per submission."""

MAX_DESCRIPTION = 8_000_000
"""Characters of a JDL or YAML description with its parameters; the limit of a single job is lower."""

DescriptionText = Annotated[str, Bounds(longest=MAX_DESCRIPTION)]

Description = Annotated[Dict[Name, Any], Bounds(longest=MAX_NAMES)]

ParameterNames = Annotated[List[Name], Bounds(longest=MAX_NAMES)]

MAX_GRAPH = 1000
"""Submissions of one request with several. The client sends larger graphs in several requests."""

ParentNames = Annotated[List[Name], Bounds(longest=MAX_NAMES)]

RowValues = Annotated[List[Any], Bounds(longest=MAX_NAMES)]


def max_rows_per_chunk(files: int) -> int:
    """Maximum number of rows in a chunk if each row names `files` input files of its own."""
    return max(1, MAX_CHUNK_FILES // files) if files else MAX_CHUNK_ROWS


@dataclass
class Parameters:
    """The values of a parametric submission: row k binds `names` to `rows[k]`; the unnamed parameter is ""."""

    names: ParameterNames = field(default_factory=list)
    rows: Annotated[List[RowValues], Bounds(longest=MAX_DESCRIPTION)] = field(default_factory=list)


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
    """The description, inputs and parameter values of a submission."""

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
    """A submission. Exactly one of `description` (snake_case names), `jdl` and `yaml` must be set."""

    description: Optional[Description] = None
    jdl: Optional[DescriptionText] = None
    yaml: Optional[DescriptionText] = None
    parameters: Optional[Parameters] = None
    """Only with `description`; JDL and YAML carry their own."""
    inputs: Annotated[List[UploadedInput], Bounds(longest=MAX_INPUTS)] = field(default_factory=list)
    """One for every `copy` input of the description; a folder is one entry for each of its files."""
    group: Name = ""
    """Empty: the group of the token."""
    key: Name = ""
    """Idempotency key: the same owner and key again gets the first answer again, and makes no more jobs."""


@dataclass
class NamedSubmission(SubmitRequest):
    """A submission of a graph, with a `description`. Its fields that name parents are here."""

    name: Name = ""
    """For the others of the request; unique."""
    after: ParentNames = field(default_factory=list)
    after_ok: ParentNames = field(default_factory=list)
    after_fail: ParentNames = field(default_factory=list)
    after_each: ParentNames = field(default_factory=list)
    """Names of this request, jobs as `12`, or submissions as `s:12`. A name stands for all jobs of its submission."""


@dataclass
class GraphRequest:
    """Submissions that depend on each other, in any order."""

    submissions: Annotated[List[NamedSubmission], Bounds(longest=MAX_GRAPH)]


@dataclass
class GraphResponse:
    submissions: List[SubmitResponse]
    """In the order of the request."""


@dataclass
class OpenRequest:
    """A submission whose rows of parameters come in chunks. Jobs of an accepted chunk may run at once."""

    description: Description
    """Without parameters of its own."""
    names: ParameterNames
    """Names of the columns of the rows; the unnamed parameter is ""."""
    key: Name
    """The same owner and key again opens the same submission, to go on with it."""
    inputs: Annotated[List[UploadedInput], Bounds(longest=MAX_INPUTS)] = field(default_factory=list)
    group: Name = ""
    expected: Optional[Annotated[int, Bounds(low=1, high=MAX_JOBS_IN_CHUNKS)]] = None
    """Upper bound of the number of rows. Makes their ids consecutive; sets the width of `%n`, which needs it."""


@dataclass
class OpenSubmission:
    submission: int
    queue: int
    open: bool
    """False: no more rows are accepted."""
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
    """The result of a validation. Errors are reported as for a real submission."""

    count: int
    """Number of jobs. For chunks: `OpenRequest.expected`, or 0."""
    warnings: List[str] = field(default_factory=list)


@dataclass
class SourceQuery(Selection):
    """A page of the selected jobs of a submission."""

    after: Cursor = 0
    limit: PageSize = 100


@dataclass
class ChunksQuery:
    """A page of the accepted chunks."""

    after: Annotated[int, Bounds(low=-1, high=MAX_INT32 - 1)] = -1
    """The last number of the page before."""
    limit: PageSize = MAX_PAGE


SUBMIT = ApiCall("POST", "/v1/submissions", SubmitRequest, SubmitResponse, USER, repeatable=True)
SUBMIT_GRAPH = ApiCall("POST", "/v1/submissions/graph", GraphRequest, GraphResponse, USER, repeatable=True)
CHECK_SUBMISSION = ApiCall(
    "POST", "/v1/submissions/check", SubmitRequest, SubmissionCheck, USER, repeatable=True
)
OPEN_SUBMISSION = ApiCall("POST", "/v1/submissions/open", OpenRequest, OpenSubmission, USER, repeatable=True)
CHECK_OPEN = ApiCall(
    "POST", "/v1/submissions/open/check", OpenRequest, SubmissionCheck, USER, repeatable=True
)
_ONE = "/v1/submissions/{submission_id}"
SHOW_SUBMISSION = ApiCall("GET", _ONE, NoRequest, OpenSubmission, PERSON)
LIST_CHUNKS = ApiCall("GET", _ONE + "/chunks", ChunksQuery, ChunksPage, PERSON)
PUT_CHUNK = ApiCall("PUT", _ONE + "/chunks/{number}", NoRequest, ChunkResponse, USER)
CLOSE_SUBMISSION = ApiCall("POST", _ONE + "/close", CloseRequest, SubmitResponse, USER, repeatable=True)
SHOW_SOURCE = ApiCall("GET", _ONE + "/source", SourceQuery, SubmissionSource, PERSON)
