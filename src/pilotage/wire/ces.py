"""Messages about computing elements (CEs). Rules of bodies, instants, pages and errors: wire/__init__.py."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, Dict, List, Optional

from pilotage.wire.call import ADMINISTRATORS, PERSON, ApiCall, NoRequest
from pilotage.wire.limits import Bounds, Message
from pilotage.wire.policy import PolicyText

BatchOption = Annotated[str, Bounds(longest=2000)]
"""KEY=VALUE of the table `[ces.NAME.TYPE]` of the policy."""

CeName = Annotated[str, Bounds(longest=200)]


@dataclass
class NodeKind:
    """The nodes of one size."""

    nodes: int
    processors: int
    memory: int
    """MB; at most 1: the batch system does not know it."""


@dataclass
class Partition:
    """A part of a batch system with limits of its own."""

    name: str
    default: bool
    up: bool
    """False: it starts no jobs."""
    wall: Optional[float]
    """The longest time of a batch job, in seconds; None: no limit."""
    kinds: List[NodeKind]
    """The kinds of its nodes; several may have the same size."""


@dataclass
class Account:
    """One way in which the server's user may charge an account of a batch system."""

    name: str
    partition: str = ""
    """The only partition that it is for; empty: any."""
    qos: List[str] = field(default_factory=list)
    """The QOS that it may use; empty: not limited."""
    default: bool = False
    """It is charged if nobody names an account."""


@dataclass
class BatchSystem:
    """A batch system as it describes itself."""

    name: str
    """The name in `ces.*.type` of the policy: slurm."""
    partitions: List[Partition] = field(default_factory=list)
    accounts: List[Account] = field(default_factory=list)
    """Empty: it has no accounting, or does not enforce it."""


@dataclass
class CeCheck:
    """Ask whether the batch system would accept the pilots of a CE. Nothing is submitted."""

    text: PolicyText
    """A whole policy; it need not be in force."""
    name: CeName


@dataclass
class CeRefusal:
    """Whether the batch system would refuse the pilots of a CE."""

    reason: str = ""
    """In the batch system's words; empty: it would accept them."""


@dataclass
class CeBudget:
    """The budget of a CE and its use, in core-seconds."""

    core_seconds: float
    """The limit for any window."""
    window: float
    """Seconds."""
    used: float
    """Used in the window that ends now."""
    committed: float
    """Pilots that wait or run may still use it."""
    pilot: float
    """One more pilot may use it."""
    room: int
    """Pilots that may be submitted."""


@dataclass
class CeWait:
    """A reason for which submissions of pilots wait in the batch system."""

    reason: str
    """In the batch system's words."""
    wait: str
    """Its class: transient, staging, policy, site, user, unknown, error or impossible; empty: it is not told."""
    submissions: int
    submitted: float
    """When the oldest of them was submitted."""
    since: Optional[float] = None
    """When the first of these waits was first listed with this class."""
    action: str = "wait"
    """wait, or cancel: at the deadline the batch jobs are cancelled."""
    deadline: Optional[float] = None
    """When the first of them is cancelled; None: never."""


@dataclass
class CeSummary:
    """A CE of the policy: whether pilots are submitted there, and if not, why."""

    name: str
    type: str
    site: str
    owners: str
    """"home" or "any": whose jobs run there."""
    state: str
    """active, paused, unreachable, stopped (after failures), disabled (by an administrator), or banned (its site).

    full: the batch system accepts no further job now. closed: by its state, it starts none.
    spent: its budget allows no further pilot.
    unusable: its wall time is too short for any job."""
    reason: str = ""
    """Why it is not active."""
    advice: str = ""
    by: str = ""
    """Who disabled, stopped or enabled it last."""
    since: Optional[float] = None
    """When that was."""
    until: Optional[float] = None
    """The end of a pause."""
    waiting: int = 0
    """Pilots that have not called home."""
    running: int = 0
    max_waiting: Optional[int] = None
    """None: the CE is local."""
    max_running: Optional[int] = None
    in_doubt: int = 0
    """Submissions of pilots that the batch system has neither acknowledged nor refused."""
    waits: List[CeWait] = field(default_factory=list)
    """Why submitted pilots wait, the most frequent reason first."""
    unlisted: int = 0
    """Pilots that the last complete listing lacks, where it should have them."""
    orphans: int = 0
    """Batch jobs at the last listing whose pilots have ended. They count as running ones; most are cancelled."""
    orphans_since: Optional[float] = None
    """The first end of their pilots."""
    listed: Optional[float] = None
    """The last complete listing of the batch system."""
    alike: int = 0
    """Failures in a row that were all `failure`."""
    failure: str = ""
    isolation: str = "none"
    """none, userns (pilots isolate payloads where the node can) or require."""
    budget: Optional[CeBudget] = None
    """None: it has no budget."""
    information: str = ""
    """Why facts about its hosts and jobs are missing or too old; empty: they are known."""
    information_at: Optional[float] = None
    """When its batch system told them; None: never yet."""


@dataclass
class CeFailure:
    """A pilot that failed."""

    pilot: int
    at: float
    node: str
    """Empty: it never called home."""
    reason: str
    """Administrators see all of it, others its beginning."""
    blame: str
    """Whose fault it looks like: site, policy, user, transient, pilotage or unknown."""
    log: str = ""
    """The end of the pilot's own output, if the server can read it; for administrators."""


@dataclass
class NodeClock:
    """The clock of a node, as the last pilot that called home from there reported it."""

    node: str
    offset: float
    """Seconds that it is ahead of the server."""
    at: float
    text: str
    """The offset in words."""


@dataclass
class CeReport:
    ce: CeSummary
    failures: List[CeFailure] = field(default_factory=list)
    """The last ones, newest first."""
    clocks: List[NodeClock] = field(default_factory=list)
    """Nodes whose clock is off by more than a minute, at most ten, the worst first."""
    clock_advice: str = ""
    core_seconds: float = 0.0
    """Booked in the last `window` seconds, in whole hours; for administrators."""
    efficiency: Optional[float] = None
    """The fraction of them that attempts held; None: there are none, or the caller is no administrator."""
    window: float = 0.0


@dataclass
class CeJob:
    """A batch job of a CE's pilots, as the batch system has it."""

    batch_id: str
    state: str
    """held, waiting, running or unknown."""
    native: str
    """The batch system's own word for the state."""
    reason: str
    """Why it waits, in the batch system's words."""
    node: str
    stamp: str
    """The name of its submission in the batch system."""
    index: int
    """Its number within the submission."""
    pilot: Optional[int]
    """None: its pilot was given up."""
    submitted: Optional[float]
    owner: str
    """The owner that its pilot is bound to; empty: it serves all owners."""
    group: str
    queue: str
    """The task queue that its pilot was submitted for first."""
    properties: Dict[str, str] = field(default_factory=dict)
    """Further facts that the batch job carries, such as cores."""


@dataclass
class CeChange:
    """Enable or disable submission to a CE."""

    name: CeName
    reason: Message = ""


@dataclass
class CeProbeRequest:
    """Submit one probe to a CE: a pilot that examines its node and runs no job."""

    name: CeName


@dataclass
class CeProbeStep:
    """One step of a probe, in the order in which the steps happen."""

    name: str
    state: str
    """ok, warning, failed, waiting (for this step), or pending (for earlier ones)."""
    text: str = ""


@dataclass
class CeProbe:
    """A probe of a CE."""

    ce: str
    number: int
    """Counts the probes of this CE."""
    requested: float
    by: str
    ended: bool
    steps: List[CeProbeStep] = field(default_factory=list)
    pilot: Optional[int] = None
    """None: the director has not submitted it yet."""
    advice: str = ""
    log: str = ""
    """The end of the probe's own output, if a step failed and the server can read it."""


@dataclass
class CeRecording:
    """The transcript of a rehearsal at a CE."""

    transcript: str
    """Lines of JSON, without secrets."""
    failure: str = ""
    """Why the rehearsal did not go through; the transcript then ends there."""


@dataclass
class CeQuery:
    """One CE."""

    name: CeName


@dataclass
class BatchSystemQuery:
    """The cluster, if the batch system has several."""

    option: Annotated[
        List[BatchOption], Bounds(longest=50), "KEY=VALUE of [ces.NAME.TYPE], such as conf of slurm"
    ] = field(default_factory=list)
    reach: Annotated[BatchOption, "where its commands run, as of the policy: ssh HOST"] = ""


LIST_CES = ApiCall("GET", "/v1/ces", NoRequest, List[CeSummary], PERSON)
REPORT_CE = ApiCall("GET", "/v1/ces/report", CeQuery, CeReport, PERSON)
LIST_CE_JOBS = ApiCall("GET", "/v1/ces/jobs", CeQuery, List[CeJob], ADMINISTRATORS)
ENABLE_CE = ApiCall("POST", "/v1/ces/enable", CeChange, CeSummary, ADMINISTRATORS)
DISABLE_CE = ApiCall("POST", "/v1/ces/disable", CeChange, CeSummary, ADMINISTRATORS)
PROBE_CE = ApiCall("POST", "/v1/ces/probe", CeProbeRequest, CeProbe, ADMINISTRATORS)
SHOW_PROBE = ApiCall("GET", "/v1/ces/probe", CeQuery, CeProbe, ADMINISTRATORS)
RECORD_CE = ApiCall("POST", "/v1/ces/record", CeProbeRequest, CeRecording, ADMINISTRATORS)
CHECK_CE = ApiCall("POST", "/v1/ces/check", CeCheck, CeRefusal, ADMINISTRATORS)
DESCRIBE_BATCH_SYSTEM = ApiCall(
    "GET", "/v1/batch-systems/{name}", BatchSystemQuery, BatchSystem, ADMINISTRATORS
)
