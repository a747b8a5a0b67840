"""Messages about the director's iterations. Rules of bodies, instants, pages and errors: wire/__init__.py."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, Dict, List, Optional

from pilotage.wire.call import ADMINISTRATORS, ApiCall
from pilotage.wire.limits import Bounds, Cursor
from pilotage.wire.queries import PageSize

SEEDS = 2**53
"""Seeds of an iteration are below this number, so that JSON keeps them exactly."""


@dataclass
class DirectorPool:
    """A submit pool in an iteration."""

    name: str
    verdict: str
    """Whether it still takes pilots after the iteration: takes, full, disabled, or handled by another director."""
    submissions: int
    """Submissions that wait or run in it after the iteration."""
    total: int
    max_threads: int = 0
    """Submissions that may run in it at the same time."""
    rank: str = ""
    """With list-match: the expression that orders its CEs."""
    cpu_normalization: str = ""
    """The expression for the speed of the cores of its CEs."""


@dataclass
class DirectorCe:
    """A CE in an iteration."""

    name: str
    pool: str
    pilot_types: List[str]
    ordered: int
    """Pilots that the iteration ordered there."""
    room: int
    """Pilots that its caps allow after the iteration."""
    closed: str = ""
    """Why nothing is submitted there."""
    cpu_power: float = 1.0
    """The speed of a core in reference cores, as the CPUNormalization of the pool gives it."""
    cpu_time: float = 0.0
    """Seconds of a reference core that a new pilot offers."""
    rank: Optional[float] = None
    """The value of the pool's Rank; None: the pool does no list-match, or the CE is closed."""


@dataclass
class QueuePilots:
    """Pilots for one queue at one CE."""

    ce: str
    pilot_type: str
    pilots: int


@dataclass
class QueueReport:
    """The decision for one queue. Terms that the demand does not have are None."""

    queue: int
    owner: str
    group: str
    cpu_time: int
    priority: float
    jobs: int
    """Waiting ones."""
    waiting: int
    """Jobs that its waiting pilots can run beside each other."""
    demand: int
    """Pilots for a single job that it asks for: the drawn number within the cap."""
    submitted: int
    """Pilots that are ordered. A wide pilot runs several jobs."""
    shortfall: str
    """Why it gets fewer pilots than its demand, or none."""
    by_priority: Optional[float] = None
    by_jobs: Optional[float] = None
    boost: Optional[float] = None
    mean: Optional[float] = None
    drawn: Optional[int] = None
    cap: Optional[int] = None
    covered: Optional[int] = None
    """With demand matched: jobs that pilots without a job will take."""
    pilot_type: str = ""
    pool: str = ""
    pools_tried: Dict[str, str] = field(default_factory=dict)
    """Pool → its verdict, in the order in which they were tried."""
    orders: List[QueuePilots] = field(default_factory=list)
    ces: Dict[str, str] = field(default_factory=dict)
    """If the report is about one queue: CE → why it gets no pilot of the queue; empty: it may get one."""


@dataclass
class DirectorReport:
    """One iteration of the director over all queues and CEs."""

    acted: bool
    """False: computed now, and nothing is submitted."""
    number: Optional[int]
    """The number of the iteration since the start of this server; None: it was only computed."""
    at: float
    seed: int
    """The same seed and the same facts give the same decisions."""
    demand: str
    """document or matched."""
    parameters: Dict[str, float]
    """The parameters by their names in the document, with the sums over all waiting queues."""
    pilots: int
    """Pilots ordered in the iteration."""
    queue_count: int
    """Waiting queues in the iteration; `queues` may have fewer."""
    pools: List[DirectorPool] = field(default_factory=list)
    ces: List[DirectorCe] = field(default_factory=list)
    queues: List[QueueReport] = field(default_factory=list)
    """The queues, ordered by id."""


@dataclass
class DirectorQuery:
    """Which iteration, and which part of it."""

    dry_run: Annotated[bool, "compute the next iteration now; nothing is submitted"] = False
    seed: Annotated[
        Optional[Annotated[int, Bounds(low=0, high=SEEDS - 1)]],
        "of a dry run; absent: of the next iteration",
    ] = None
    queue: Annotated[Optional[Cursor], "only this task queue, with the verdict for each CE"] = None
    limit: Annotated[PageSize, "queues at most"] = 100


EXPLAIN_DIRECTOR = ApiCall("GET", "/v1/director", DirectorQuery, DirectorReport, ADMINISTRATORS)
