"""Messages of the attempts that accounting counts. Rules of bodies, instants, pages and errors: wire/__init__.py."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, List, Optional

from pilotage.wire.call import PERSON, ApiCall
from pilotage.wire.limits import MAX_INSTANT, MAX_PAGE, Bounds, Cursor, Int32
from pilotage.wire.queries import PageSize

EndInstant = Annotated[float, Bounds(low=0, high=MAX_INSTANT)]


@dataclass
class AccountedQuery:
    """A page of the attempts that ended in [begin, end). The next page has the values of `next`."""

    begin: Annotated[EndInstant, "only attempts that ended at this instant or later"] = 0.0
    end: Annotated[EndInstant, "only attempts that ended before this instant"] = MAX_INSTANT
    after_end: EndInstant = 0.0
    after_job: Cursor = 0
    after_epoch: Int32 = 0
    """The end, job and epoch of the last attempt of the page before."""
    limit: PageSize = MAX_PAGE


@dataclass
class AccountedAttempt:
    """An attempt that has ended, with its use and the names by which accounting knows its user."""

    job: int
    epoch: int
    owner: str
    group: str
    site: str
    ce: str
    """Empty: its pilot is deleted."""
    host: str
    started: float
    ended: float
    outcome: str
    """Such as "applied": its result counts."""
    exit_code: Optional[int]
    wall: float
    """Seconds, as usage counts them."""
    cpu: float
    """Seconds on all its cores together."""
    processors: int
    cpu_power: float
    """Reference cores of each of its cores."""
    max_rss: int
    """MB; 0: not known."""
    vo: str = ""
    """The virtual organisation that the policy in force gives to the group."""
    subject: str = ""
    """The certificate subject that the policy in force gives to the owner."""


@dataclass
class AccountedPosition:
    after_end: float
    after_job: int
    after_epoch: int


@dataclass
class AccountedPage:
    attempts: List[AccountedAttempt]
    """In the order of their ends."""
    next: Optional[AccountedPosition] = None


LIST_ACCOUNTED = ApiCall("GET", "/v1/accounting/attempts", AccountedQuery, AccountedPage, PERSON)
