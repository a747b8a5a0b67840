"""Messages about bans of users.

GET  /v1/bans         BanList: the bans in force; with all=true ended ones too
POST /v1/bans         BanRequest → BanSummary
POST /v1/bans/lift    BanLift → BanSummary
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import List, Optional

from .limits import GivenName, Instant, Message, Name


@dataclass
class BanRequest:
    """Ban a user: no job of the user starts at the site, and running ones are killed."""

    user: GivenName
    site: Name = ""
    """Empty: all sites."""
    until: Optional[Instant] = None
    """None: until the ban is lifted."""
    reason: Message = ""


@dataclass
class BanLift:
    """End a ban."""

    user: GivenName
    site: Name = ""
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
