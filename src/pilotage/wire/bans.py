"""Messages about bans of users."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import List, Optional

from pilotage.wire.call import PERSON, ApiCall
from pilotage.wire.queries import EndedQuery

from .limits import GivenName, Instant, Message

BannedSite = Optional[GivenName]
"""None: all sites. An empty name is refused, as of an unset variable: it would ban everywhere."""


@dataclass
class BanRequest:
    """Ban a user: no job of the user starts at the site, and running ones are killed."""

    user: GivenName
    site: BannedSite = None
    until: Optional[Instant] = None
    """None: until the ban is lifted."""
    reason: Message = ""


@dataclass
class BanLift:
    """End a ban."""

    user: GivenName
    site: BannedSite = None
    reason: Message = ""


@dataclass
class BanSummary:
    """A ban of a user."""

    user: str
    site: str
    """Empty: all sites."""
    by: str
    reason: str
    since: float
    until: Optional[float] = None
    """None: until it is lifted."""
    ended: Optional[float] = None
    """None: it is in force."""
    ended_by: str = ""


@dataclass
class BanList:
    bans: List[BanSummary] = field(default_factory=list)


# Administrators of a site ban there, too.
LIST_BANS = ApiCall("GET", "/v1/bans", EndedQuery, BanList, PERSON)
BAN_USER = ApiCall("POST", "/v1/bans", BanRequest, BanSummary, PERSON)
LIFT_BAN = ApiCall("POST", "/v1/bans/lift", BanLift, BanSummary, PERSON)
