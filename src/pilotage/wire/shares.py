"""Messages of shares and usage.

Rules of bodies, instants and errors: wire/__init__.py.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, List, Optional

from pilotage.wire.call import PERSON, ApiCall, NoRequest
from pilotage.wire.limits import MAX_INSTANT, Bounds, Instant, Name


@dataclass
class ShareSlice:
    """One span of time that a correction looks back upon, or that is only shown (`correction` 1).

    `expected` and `used` are parts of 1: of all groups, or of all owners of the group. None: the entity is not
    counted in this slice, or nobody used anything. `running` is the average number of running jobs (or cores).
    """

    name: str
    time_span: float
    expected: Optional[float]
    used: Optional[float]
    running: float
    correction: float
    corrector: str = ""
    """Empty for use that is only shown."""
    instance: str = ""
    measure: str = "used"
    """used: over the whole span; decayed: `time_span` is the half-life with which use loses weight."""


@dataclass
class ShareFactor:
    """The factor given by an instance of a corrector."""

    corrector: str
    instance: str
    factor: float


@dataclass
class ShareRow:
    """A group (`owner` empty), or an owner in a group that is not JOB_SHARING."""

    owner: str
    group: str
    share: float
    """The share of a group in the policy, or an owner's equal part among the owners with waiting jobs."""
    entitled: Optional[float]
    """Its part of 1 among all groups, or among the owners of its group, that wait or have used something lately."""
    correction: float
    """The product of `factors`; 1 if nothing corrects."""
    scaled: float
    """The same after the owners of a group were made to add up to their group's corrected share."""
    priority: float
    """Sum of the priorities of its task queues: share times correction; 0 without waiting jobs."""
    waiting: int
    queues: int
    slices: List[ShareSlice] = field(default_factory=list)
    note: str = ""
    factors: List[ShareFactor] = field(default_factory=list)
    """One for each instance that corrects between these entities, in the order of the policy."""


@dataclass
class ShareTable:
    rule: str
    correctors: List[str]
    as_of: Optional[float]
    """Until when use was charged; None: not yet."""
    corrected_at: Optional[float]
    rows: List[ShareRow] = field(default_factory=list)


@dataclass
class FairnessRow:
    """A group, or an owner of it. Parts are of 1, among the entities that used anything or wait."""

    owner: str
    group: str
    entitled: float
    expected: float
    """The part that the draw rule gives if every entity always has waiting jobs."""
    used: float
    bound: float
    """Allowed distance of `used` from `expected`."""
    running: float
    """Average number of running jobs."""
    waiting: int
    demand: float
    """Fraction of the time with waiting jobs."""
    verdict: str
    """within; below; above; less demand: below, but it did not always have work waiting; room left: above, while
    another one had less demand; too few attempts: even no use at all could be chance."""


@dataclass
class FairnessReport:
    begin: float
    end: float
    rule: str
    unit: str
    assumptions: List[str] = field(default_factory=list)
    rows: List[FairnessRow] = field(default_factory=list)


@dataclass
class AccountRow:
    """Attempts that ended in `month` ("2026-11", UTC); seconds, normalised to reference cores where so named."""

    month: str
    site: str
    group: str
    owner: str
    attempts: int
    applied: int
    wall: float
    core_wall: float
    cpu: float
    normalised_wall: float
    normalised_cpu: float


@dataclass
class FairnessQuery:
    """A period up to now."""

    since: Annotated[
        float, Bounds(low=60, high=MAX_INSTANT), "length of the period in seconds, up to now"
    ] = 604800.0


@dataclass
class AccountingQuery:
    """The attempts that ended in [begin, end)."""

    begin: Annotated[Optional[Instant], "instant; default: the end of the first attempt"] = None
    end: Annotated[Optional[Instant], "instant; default: the end of the last attempt"] = None


@dataclass
class UsePoint:
    """The use of a group, or of an owner in it, over one part of a period."""

    begin: float
    end: float
    owner: str
    """Empty: of all owners. In a report on one group: of the owners that it does not name."""
    group: str
    jobs: float
    """Average number of running jobs."""
    cores: float
    """Average number of cores that they held."""


@dataclass
class UseReport:
    begin: float
    end: float
    span: float
    """Seconds of each part."""
    points: List[UsePoint] = field(default_factory=list)
    """Sorted by time. Parts of the period without use have none."""


@dataclass
class UseQuery(FairnessQuery):
    """A period up to now in equal parts."""

    points: Annotated[int, Bounds(low=1, high=100), "parts of the period"] = 24
    group: Annotated[Name, "the owners of this group; default: the groups"] = ""


SHARES = ApiCall("GET", "/v1/shares", NoRequest, ShareTable, PERSON)
FAIRNESS = ApiCall("GET", "/v1/fairness", FairnessQuery, FairnessReport, PERSON)
ACCOUNTING = ApiCall("GET", "/v1/accounting", AccountingQuery, List[AccountRow], PERSON)
USE = ApiCall("GET", "/v1/shares/use", UseQuery, UseReport, PERSON)
