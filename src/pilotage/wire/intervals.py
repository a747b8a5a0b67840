"""Messages of waiting jobs and shares over time. Rules of bodies, instants, pages and errors: wire/__init__.py."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, List, Optional

from pilotage.wire.call import PERSON, ApiCall
from pilotage.wire.limits import MAX_INSTANT, Bounds, Instant, Name
from pilotage.wire.queries import PageQuery


@dataclass
class PeriodQuery:
    """A period in equal parts. The parts are of whole intervals of 10 minutes, an hour, a day or 4 weeks, in UTC."""

    since: Annotated[
        float, Bounds(low=60, high=MAX_INSTANT), "length of the period in seconds, up to `end`"
    ] = 86400.0
    end: Annotated[Optional[Instant], "end of the period; default: now"] = None
    points: Annotated[int, Bounds(low=1, high=50), "parts of the period, at most"] = 24


@dataclass
class WaitingHistoryQuery(PeriodQuery):
    """The waiting jobs that the caller may see."""

    group: Annotated[Name, "only this group"] = ""


@dataclass
class WaitingPoint:
    """The jobs of a group that waited for one reason in a part of a period."""

    begin: float
    group: str
    """Empty: the groups that are not named, since 20 others had more waiting jobs."""
    reason: str
    """One of `Why.reason`; empty: not known yet."""
    jobs: float
    """The average number, over the time that is recorded."""


@dataclass
class WaitingHistory:
    begin: float
    end: float
    span: float
    """Seconds of each part."""
    recorded: List[float] = field(default_factory=list)
    """For each part, the seconds of which something is recorded: 0 while no server ran."""
    points: List[WaitingPoint] = field(default_factory=list)
    """Sorted by time, group and reason. Without waiting jobs there is none."""


@dataclass
class PastQueuesQuery(PageQuery):
    """The queues that waited in a period."""

    begin: Annotated[Instant, "begin of the period"] = 0.0
    end: Annotated[Instant, "end of the period"] = MAX_INSTANT
    reason: Annotated[Name, "only queues that waited for this reason"] = ""


@dataclass
class PastQueue:
    """A queue that waited in a period, with the last of its waits there."""

    id: int
    owner: str
    group: str
    reason: str
    detail: str
    since: float
    until: Optional[float] = None
    """None: it still waits for this."""


@dataclass
class PastQueuesPage:
    queues: List[PastQueue] = field(default_factory=list)
    next: Optional[int] = None


@dataclass
class ShareHistoryQuery(PeriodQuery):
    """The shares of all groups, or of the owners of one."""

    group: Annotated[Name, "the owners of this group; default: the groups"] = ""


@dataclass
class SharePoint:
    """The share of a group, or of an owner in it, in a part of a period. Averages over the time that is recorded."""

    begin: float
    owner: str
    """Empty: of the whole group."""
    group: str
    entitled: float
    """Its part of 1 among all groups, or among the owners of its group; 0 while it had no work and no use."""
    used: float
    """Its part of 1 of the use that corrections looked back on, over the longest of their spans."""
    correction: float
    """The factor of the scheduler, while it was entitled to something."""
    corrected: float
    """Its part of 1 after correction: `entitled` times `correction`, as a part of the sum of all."""


@dataclass
class ShareHistory:
    begin: float
    end: float
    span: float
    """Seconds of each part."""
    recorded: List[float] = field(default_factory=list)
    """For each part, the seconds of which something is recorded: 0 while no server ran."""
    points: List[SharePoint] = field(default_factory=list)
    """Sorted by time."""


WAITING_HISTORY = ApiCall("GET", "/v1/waiting/history", WaitingHistoryQuery, WaitingHistory, PERSON)
PAST_QUEUES = ApiCall("GET", "/v1/waiting/queues", PastQueuesQuery, PastQueuesPage, PERSON)
SHARE_HISTORY = ApiCall("GET", "/v1/shares/history", ShareHistoryQuery, ShareHistory, PERSON)
