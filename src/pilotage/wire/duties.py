"""Messages about the server's duties. Rules of bodies, instants and errors: wire/__init__.py."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import List

from pilotage.wire.call import PERSON, ApiCall, NoRequest


@dataclass
class FailingRowSummary:
    """A row that a duty of the server cannot process. Other rows do not wait for it, and each cycle tries it again."""

    duty: str
    step: str
    """Empty: the whole cycle of the duty fails."""
    row: str
    """Empty for callers that are no administrators, as `error` is."""
    error: str
    since: float


@dataclass
class DutyList:
    duties: List[str] = field(default_factory=list)
    """The duties that run on this server."""
    failing: List[FailingRowSummary] = field(default_factory=list)
    """At most 1,000."""
    count: int = 0
    """All failing rows."""


LIST_DUTIES = ApiCall("GET", "/v1/duties", NoRequest, DutyList, PERSON)
