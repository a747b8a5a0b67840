"""The messages between a pilot and the server, protocol 1.

Standard-library dataclasses in Python 3.9 syntax: the pilot encodes them with `json`, the server decodes them
by type. New fields get defaults, so that an old pilot can talk to a newer server. A change that breaks old pilots
raises PROTOCOL. The server answers every protocol in SUPPORTED as long as pilots of that protocol may live.
Times are seconds and travel as durations, never as instants; memory is MB (2^20 bytes).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, Dict, List, Optional

from .data import MAX_STORED_FILES, DataOrder, StoragePlace, StoredFile
from .limits import (
    MAX_INSTANT,
    MAX_INT32,
    MAX_INT64,
    Bounds,
    Count,
    FileName,
    Id,
    Instant,
    Int32,
    Message,
    Name,
    Seconds,
)
from .payload_use import PayloadUse

MB = 1 << 20
"""The unit of memory, here and everywhere: that of batch systems and of /proc."""
PROTOCOL = 1
SUPPORTED = (1,)
INLINE_OUTPUT_BYTES = 4096
"""Standard output or error up to this size travels inside `Finish`; larger ones are uploaded."""
MAX_HELD = 2048
"""Jobs that a pilot may hold at one time, offers and unreported ends included."""
MAX_OUTPUTS = 20_000
"""Files, or patterns, in each list of one report about outputs."""
MAX_OTHER_FOLDERS = 100
MAX_POWER = 1e6
"""The largest power of a core, in reference cores."""

Cores = Annotated[int, Bounds(low=0, high=1_000_000)]
Megabytes = Annotated[int, Bounds(low=0, high=MAX_INT64 // MB)]
CpuSeconds = Annotated[float, Bounds(low=0, high=MAX_INSTANT * MAX_POWER)]
Inlined = Annotated[str, Bounds(longest=2 * INLINE_OUTPUT_BYTES)]
Status = Annotated[int, Bounds(low=-(2**31), high=MAX_INT32)]
"""An exit code or the number of a signal."""
Told = Annotated[str, Bounds(longest=100_000)]
"""A text that the server cuts to the length that it shows, so that the result is not lost with it."""
Fact = Annotated[str, Bounds(longest=1000)]
Tags = Annotated[List[Name], Bounds(longest=1000)]
Facts = Annotated[Dict[Name, Fact], Bounds(longest=1000)]
LogText = Annotated[str, Bounds(longest=16_000)]
FolderName = Annotated[str, Bounds(longest=4096)]
FileNames = Annotated[List[FileName], Bounds(longest=MAX_OUTPUTS)]
StoredFiles = Annotated[List[StoredFile], Bounds(longest=MAX_STORED_FILES)]


@dataclass
class Node:
    """The offer of a pilot *now*: the rest of its node after the payloads it holds."""

    hostname: Name = ""
    platform: Name = ""
    processors: Cores = 1
    memory: Megabytes = 0
    """MB; 0 means not known, and then nothing is refused for memory."""
    cpu_left: CpuSeconds = 0.0
    """Wall seconds left times the CPU power given at enrolment: seconds of a reference core, for each core."""
    tags: Tags = field(default_factory=list)
    attributes: Facts = field(default_factory=dict)
    """Further facts for Requirements: KernelVersion, CPUModel, Glibc, GPUModel ..."""
    wall_left: Seconds = 0.0
    """Seconds by the clock until it ends its payloads."""
    isolation: Name = ""
    """How this pilot isolates its payloads from each other and from itself: "userns", or empty for not at all."""
    disk: Megabytes = 0
    """MB that are free in its work folder; as `memory` 0 means not known."""
    other_folders: Annotated[List[FolderName], Bounds(longest=MAX_OTHER_FOLDERS)] = field(
        default_factory=list
    )
    """Folders of jobs in place that are other ones on this node: it takes no more jobs for them."""


@dataclass
class EnrolRequest:
    """POST /v1/pilot/enrol: trade the secret of the batch script for a token.

    `nonce` is drawn at random at every start of the program. A new nonce supersedes the earlier pilot of the same
    (secret, index) and raises an alarm. The same nonce again gets the same token for the same pilot.
    """

    secret: Fact
    index: Int32
    nonce: Name
    protocol: Int32 = PROTOCOL
    version: Name = ""
    hostname: Name = ""
    batch_id: Name = ""
    age: Seconds = 0.0
    """Seconds since the batch job began."""
    clock: Instant = 0.0
    """Seconds since 1970 by the node's clock; 0: not told. It is compared, and nothing is computed with it."""
    restarts: Int32 = 0
    """How often the batch system has started the batch job again. Then the second program is told to leave."""


@dataclass
class EnrolResponse:
    pilot: int
    token: str
    """Sent as `Authorization: Bearer ...` from now on."""
    incarnation: int
    site: str
    ce: str
    lease: float
    """Seconds for which its jobs remain its own. It counts from before it sent the request, and acts a tenth early."""
    heartbeat: float
    """Seconds: the longest interval between two exchanges that the server wants."""
    idle: float
    """Seconds without work after which a pilot ends."""
    cpu_power: float = 1.0
    """Reference cores per core of this CE."""
    wall: float = 0.0
    """Wall seconds that the batch system allows; 0: no limit."""
    margin: float = 30.0
    """Seconds before the end of its wall time at which the pilot ends its payloads. It does not offer them to jobs."""
    least: float = 60.0
    """With fewer seconds left the pilot starts no job. If it gets less time than `wall`, the threshold shrinks too."""
    processors: int = 0
    """Cores that the batch job was given; 0: find out."""
    memory: int = 0
    """MB that the batch job was given; 0: find out."""
    disk: int = 0
    """MB of disk that payloads may ask for together; 0: all that its work folder has free."""
    tags: List[str] = field(default_factory=list)
    isolation: str = "none"
    """none; userns: isolate payloads if this node can; require: leave if it cannot."""
    visible: List[str] = field(default_factory=list)
    """Paths of the node that isolated payloads see: PATH or PATH:ro, read-only, or PATH:rw."""
    ahead: int = 128
    """The most jobs that may be held beyond the running ones, when jobs are very short."""
    max_output_file: int = 0
    """Bytes of one output file that the server takes; 0: not told."""
    send_log: bool = False
    """The server cannot read the pilot's output on the node: the pilot sends its end when it leaves."""
    probe: bool = False
    """The pilot examines its node for `pilotage ce test`, reports to /v1/pilot/probe, and ends without a job."""
    leave: str = ""
    """Why the pilot must end at once; there is no token then. Empty: it may stay."""


@dataclass
class Reference:
    """One try at a job: the job and the epoch of the offer that gave it."""

    job: Id
    epoch: Int32


@dataclass
class StartedPayload(Reference):
    """The payload of a job that was taken ahead runs."""

    ran: Seconds = 0.0
    """Seconds since its start, by the node's clock."""


@dataclass
class RefusedOutput:
    """A file that matched a pattern of the output sandbox and could not be stored."""

    name: Told
    """The name as text that can be shown; bytes that are not UTF-8, and control characters, are escaped."""
    reason: Told


@dataclass
class Finish:
    """The end of one payload. `failure` is empty when it ran to its end, with any exit code.

    Failure classes:

    - "limit-wall", "limit-cpu", "limit-memory", "killed"
    - "node": the node could not run it (no container runtime, full disk, shared input missing)
    - "input": an input could not be fetched, or an input file of a data set is missing
    - "output": an output could not be uploaded, or no storage place took it
    - "cut-off": stopped at the end of the lease, as the job wished
    """

    job: Id
    epoch: Int32
    exit_code: Optional[Status] = None
    signal: Optional[Status] = None
    failure: Name = ""
    message: Told = ""
    wall: Seconds = 0.0
    download: Seconds = 0.0
    upload: Seconds = 0.0
    """Seconds after the program in which outputs were stored; `download`: before it, for the inputs."""
    cpu: CpuSeconds = 0.0
    max_rss: Megabytes = 0
    """MB"""
    stdout: Optional[Inlined] = None
    """Base64 of the whole standard output if it is at most INLINE_OUTPUT_BYTES; None: uploaded."""
    stderr: Optional[Inlined] = None
    outputs: FileNames = field(default_factory=list)
    """Names of the files uploaded for (job, epoch), standard output and error included if uploaded."""
    missing: Annotated[List[Told], Bounds(longest=MAX_OUTPUTS)] = field(default_factory=list)
    """Patterns of the output sandbox that matched nothing."""
    refused: Annotated[List[RefusedOutput], Bounds(longest=MAX_OUTPUTS)] = field(default_factory=list)
    """Files that a pattern matched and that were not stored. Like `missing`, they leave the result as it is."""
    files: StoredFiles = field(default_factory=list)
    """The files that a job with a data order has written to storage places."""
    logs: Optional[StoredFile] = None
    """The archive of the logs of this attempt, at a storage place. None: its order names none, or none was stored."""


@dataclass
class Release:
    """Give a job back unfinished; it costs the job nothing."""

    job: Id
    epoch: Int32
    reason: Message = ""
    ran: Optional[Seconds] = None
    """Seconds that its payload ran; 0: it never began. None: an old pilot does not tell."""


@dataclass
class Take:
    """Ask for up to `count` jobs that fit `node` together.

    `number` rises with every take that was answered with an offer; sent again with the same number it gets the
    same answer again.
    """

    number: Int32
    count: Count
    node: Node
    ahead: Count = 0
    """The part of `count` that need not fit together with the rest: each of these jobs fits `node` by itself, and is
    started as earlier ones end. Asked for only while payloads are very short; a server may give fewer, or none."""


@dataclass
class ExchangeRequest:
    """POST /v1/pilot/exchange: several messages, one transaction; also the heartbeat (all empty).

    The server works through finishes, releases, confirms, starts, take, in this order. `holding` are all the offers and
    jobs that the pilot believes to be its own after this message. Offers and jobs that are not come back in `stop`.
    """

    incarnation: Count
    finishes: Annotated[List[Finish], Bounds(longest=MAX_HELD)] = field(default_factory=list)
    releases: Annotated[List[Release], Bounds(longest=MAX_HELD)] = field(default_factory=list)
    confirms: Annotated[List[Reference], Bounds(longest=MAX_HELD)] = field(default_factory=list)
    take: Optional[Take] = None
    holding: Annotated[List[Reference], Bounds(longest=MAX_HELD)] = field(default_factory=list)
    leaving: Message = ""
    """Not empty: the pilot leaves after this message, for this reason ("idle", "out of time", "told to leave",
    "received SIGTERM"). Everything it held must be finished or released in this or an earlier message."""
    log: LogText = ""
    """With `leaving`, if the server wants it: the end of the pilot's own output."""
    unfit: bool = False
    """The pilot leaves because no payload may run on this node; `leaving` tells why."""
    starts: Annotated[List[StartedPayload], Bounds(longest=MAX_HELD)] = field(default_factory=list)
    """Jobs that were taken ahead and whose payloads run now, told again until this is answered. A payload that ends
    soon has no start here: its end tells how long it ran."""
    ahead: Annotated[List[Id], Bounds(longest=MAX_HELD)] = field(default_factory=list)
    """The jobs among `confirms` that are started later, as earlier ones end. They use no core yet."""
    uses: Annotated[List[PayloadUse], Bounds(longest=MAX_HELD)] = field(default_factory=list)
    """All payloads that were measured since the last message; about once per heartbeat, never a message of its own."""


@dataclass
class Input:
    """One file of the input sandbox."""

    name: str
    """Relative path in the payload's folder."""
    mode: str
    """copy: GET .../inputs/{source}, a digest | shared: a path of the node, linked | url: fetched by the node"""
    source: str
    size: int = 0
    executable: bool = False


@dataclass
class Payload:
    """The program to run and its limits. Only `setup_lines` are given to a shell; no other string is."""

    executable: str
    arguments: List[str] = field(default_factory=list)
    environment: Dict[str, str] = field(default_factory=dict)
    inputs: List[Input] = field(default_factory=list)
    outputs: List[str] = field(default_factory=list)
    """Names or glob patterns, relative."""
    std_output: str = "stdout"
    std_error: str = "stderr"
    setup_lines: List[str] = field(default_factory=list)
    container: str = ""
    wall_time: float = 0.0
    """Seconds; 0: as long as the pilot lives."""
    warn: float = 0.0
    """Seconds from SIGUSR1 to the end that wall time or pilot set; 0: no signal."""
    cpu_time: float = 0.0
    """CPU seconds of a reference core, per processor; 0: no limit."""
    memory: int = 0
    """MB, of the whole process tree; 0: no limit."""
    disk: int = 0
    """MB of free disk that it asked for. It is no limit."""
    processors: int = 1
    on_cutoff: str = "continue"
    log_level: str = "INFO"
    owner: str = ""
    group: str = ""
    name: str = ""
    data: Optional[DataOrder] = None
    """The data of a job of a request; None: a user's job."""
    folder: str = ""
    """The folder in which it runs in place; empty: a folder of its own."""
    stdout_file: str = ""
    """File for standard output in place; `%N` is the host and `%%` a percent sign."""
    stderr_file: str = ""
    """File for standard error; empty: `stdout_file`, if there is one."""
    open_mode: str = "truncate"
    """truncate | append, for files that exist."""
    folder_mark: str = ""
    """Inode numbers by which the node knows `folder` again; empty: it only needs to exist."""
    umask: str = ""
    """Its umask in place, in octal digits; empty: that of the pilot."""


@dataclass
class OfferedJob:
    """A job offered to the pilot: to be confirmed before it is started."""

    job: int
    epoch: int
    payload: Payload
    sandbox: Optional[StoragePlace] = None
    """The place of its output files, in an S3 service; None: they are sent to the server."""


@dataclass
class Verdict:
    """The answer to one message about one job: "accepted", "superseded" or "unknown" (no such job)."""

    job: int
    epoch: int
    verdict: str
    reason: str = ""
    keep_streams: bool = False
    """The job in `stop` was killed; put its standard output and error to its `streams`, as stdout and stderr."""


@dataclass
class ExchangeResponse:
    incarnation: int
    finishes: List[Verdict] = field(default_factory=list)
    releases: List[Verdict] = field(default_factory=list)
    confirms: List[Verdict] = field(default_factory=list)
    offers: List[OfferedJob] = field(default_factory=list)
    take_number: int = 0
    """The number of the take that `offers` answers; 0: the take found nothing."""
    no_match: Dict[str, int] = field(default_factory=dict)
    """Why a take found nothing: how many queues fell at which condition."""
    poll: float = 0.0
    """Seconds within which the next take is welcome, after one that found nothing; 0: the pilot decides alone."""
    stop: List[Verdict] = field(default_factory=list)
    """Jobs of `holding` that are no longer the pilot's. End that work, report nothing of it."""
    follow: List[int] = field(default_factory=list)
    """Jobs of this pilot whose standard output somebody watches: send tails to /v1/pilot/jobs/{job}/tail."""
    lease: float = 0.0
    heartbeat: float = 0.0
    """Seconds until the next contact is due, at the latest."""
    leave: str = ""
    """Not empty: take no more work, leave when the held jobs have ended ("drain"), or give them back ("cancel")."""


@dataclass
class ErrorBody:
    """The body of every answer that is not 2xx."""

    code: str
    message: str
    hint: str = ""
    retry_after: float = 0.0
