"""Messages of the audit log. Rules of bodies, instants, pages and errors: wire/__init__.py."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, List, Optional

from pilotage.wire.call import ADMINISTRATORS, ApiCall
from pilotage.wire.limits import MAX_INSTANT, Bounds, Cursor, Name
from pilotage.wire.queries import PageSize


@dataclass
class AuditQuery:
    """A page of changes, newest first."""

    after: Cursor = 0
    """The last id of the page before; 0: begin at the newest."""
    limit: PageSize = 100
    since: Annotated[float, Bounds(low=0, high=MAX_INSTANT), "only changes at this instant or later"] = 0.0
    user: Annotated[Name, "only changes by this user"] = ""


@dataclass
class AuditEntry:
    """A change by a person, with the address and the state before and after."""

    id: int
    at: float
    user: str
    group: str
    address: str
    """The address that the server saw, such as that of a proxy. Empty: a first sign-in at an issuer."""
    call: str
    """Such as "POST /v1/bans"."""
    target: str
    before: str
    after: str
    reason: str


@dataclass
class AuditPage:
    entries: List[AuditEntry]
    next: Optional[int] = None
    """`after` of the next page; None: this was the last."""


LIST_AUDIT = ApiCall("GET", "/v1/audit", AuditQuery, AuditPage, ADMINISTRATORS)
