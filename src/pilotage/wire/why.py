"""The answer to the question why a job waits. Rules of bodies, instants and errors: wire/__init__.py."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Dict, List, Optional

from pilotage.wire.call import PERSON, ApiCall, NoRequest
from pilotage.wire.matchmaking import SubExpression
from pilotage.wire.payload_use import JobUse


@dataclass
class SiteRefusal:
    """A site whose known offers all refuse the queue."""

    site: str
    offers: int
    """Known offers of the site: classes of offers made in the last day, and possible offers of its CEs."""
    conditions: Dict[str, int]
    """How many of them refuse it at each condition; one offer may refuse it at several."""
    takes: Dict[str, int]
    """How often pilots made such offers, by condition."""


@dataclass
class Opening:
    """One change to the requirements of the jobs, and the slots that it would open."""

    attribute: str
    """The attribute of the task queue that changes: memory, disk, processors, cpu_time, wall_time, sites, banned_sites,
    grid_ces, platforms, tags, job_type, setup, pilot_types, force_generic, requirements."""
    value: str
    """The new value; of a set the member that is added or taken away."""
    text: str
    slots: int
    """Number of such jobs that could run at the same time; a lower bound if there are many pilots."""
    sites: Dict[str, int]


@dataclass
class CeRefusals:
    """The sub-expressions of the Requirements that said no at a CE."""

    ce: str
    site: str
    refusals: List[SubExpression]
    """The first of them."""


@dataclass
class ClosedLimit:
    """A limit of the policy that lets nothing of the queue start now."""

    text: str
    running: int
    most: Optional[int]
    """Running jobs that it allows."""
    wait: float
    """Seconds until its delay lets the next one start."""


@dataclass
class HigherBucket:
    cpu_time: int
    queues: int
    jobs: int


@dataclass
class Rival:
    """Whose queues take part in the same draw. `owner` is empty for a group that shares its share."""

    owner: str
    group: str
    priority: float
    ratio: float
    """To the priority of ours."""
    waiting: int


@dataclass
class Standing:
    """How the queue stands in the draw for one kind of offer that it fits."""

    site: str
    ce: str
    processors: int
    memory: int
    cpu_time: float
    possible: bool
    """No pilot has made it: one there would."""
    takes: int
    """How often it was made in the last day."""
    higher_buckets: List[HigherBucket]
    """Buckets that are drawn first regardless of priority; the other fields describe the draw after them."""
    chance: float
    """The probability that such a node draws this queue, each time it asks."""
    queues: int
    """Queues in the draw, itself included."""
    priority: float
    """The priority of the queue."""
    ours: float
    """Sum of the priorities of its owner's (or sharing group's) queues in the draw."""
    ahead: int
    """Others with a larger sum."""
    rivals: List[Rival]
    """The largest sums."""
    serves: str = ""
    """Whom its pilots serve alone, such as "alice"; "": everybody."""
    others: int = 0
    """Jobs that wait in the other queues of the draw."""


@dataclass
class PlaceInQueue:
    """Jobs before a job or beside it; 10,000 of the same queue stand for that or more."""

    higher: int
    """With a higher UserPriority."""
    older: int
    """With the same one, submitted before."""
    others: int = 0
    """In other queues, for the same nodes."""
    queues: int = 0
    """The number of these queues."""


@dataclass
class CePilots:
    """Whether pilots come at a CE whose offers fit."""

    ce: str
    site: str
    pilots: Dict[str, int]
    """Live ones by state."""
    cores: int
    used: int
    ordered: int
    """Asked for in the director's last cycle."""
    not_before: float
    """No new ones until then, since the last ones never called home or had no job; 0: not so."""
    in_vain: int = 0
    """Consecutive pilots started for this queue without a job; 0: the last ones never called home."""
    giving_way: int = 0
    """Live ones that take no more jobs and leave, since it is another owner's turn (reason `share`)."""
    budget: str = ""
    """The budget of the CE and its use, if it allows no further pilot."""
    switched_off: bool = False
    """It is disabled, or stopped after failures: no pilot starts before `ce enable`."""


@dataclass
class Waited:
    """One entry of the history."""

    reason: str
    """One of `Why.reason`, or "" for a time in which nothing waited."""
    detail: str
    since: float
    until: Optional[float]
    """None: still."""


@dataclass
class Blocker:
    """An open condition of a Blocked job."""

    condition: str
    """after, after_ok or after_fail."""
    parent: str
    """A text such as "job 12" or "submission 3"."""
    job: int
    """The parent, or the first job of the submission that has not ended; 0: all have ended just now."""
    state: str
    """The state of this job."""


@dataclass
class Why:
    """The reason why a job or the jobs of a queue wait."""

    summary: str
    """The answer in a sentence."""
    advice: str = ""
    """Advice."""
    reason: str = ""
    """membership, draining, no-offer, needs, limit, pool, background, cpu-bucket, share, pilot, ce or slots.

    Empty: nothing waits.
    """
    detail: str = ""
    job: Optional[int] = None
    state: str = ""
    """The state of the job."""
    until: Optional[float] = None
    """When a rescheduled job goes back to its queue."""
    queue: Optional[int] = None
    needs: Dict[str, str] = field(default_factory=dict)
    """Requirements of the queue."""
    waiting: int = 0
    """Jobs in the queue."""
    fitting: int = 0
    """Known offers that it fits."""
    refused: List[SiteRefusal] = field(default_factory=list)
    """Only where nothing fits."""
    openings: List[Opening] = field(default_factory=list)
    requirements: List[CeRefusals] = field(default_factory=list)
    """The first CEs at which the Requirements refuse."""
    limits: List[ClosedLimit] = field(default_factory=list)
    standings: List[Standing] = field(default_factory=list)
    in_queue: Optional[PlaceInQueue] = None
    pilots: List[CePilots] = field(default_factory=list)
    history: List[Waited] = field(default_factory=list)
    """Earlier waits of the queue, oldest first."""
    blockers: List[Blocker] = field(default_factory=list)
    """The first open conditions of a Blocked job."""
    use: Optional[JobUse] = None
    """The use of a job that runs; None: it does not run, or its pilot has told nothing yet."""


WHY_JOB = ApiCall("GET", "/v1/jobs/{job}/why", NoRequest, Why, PERSON)
WHY_QUEUE = ApiCall("GET", "/v1/queues/{queue}/why", NoRequest, Why, PERSON)
