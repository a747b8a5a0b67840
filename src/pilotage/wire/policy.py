"""Messages of the policy; administrators only. Rules of bodies, instants, pages and errors: wire/__init__.py."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, List, Optional

from pilotage.wire.call import ADMINISTRATORS, ApiCall, NoRequest
from pilotage.wire.limits import Bounds, Id, Message
from pilotage.wire.queries import PageQuery

MAX_POLICY = 1_000_000
"""Characters of a policy."""

PolicyText = Annotated[str, Bounds(longest=MAX_POLICY)]


@dataclass
class Stranded:
    """Waiting jobs that a policy does not let start; they stay."""

    group: str
    owner: str
    """Empty: the whole group, since the policy does not have it."""
    waiting: int


@dataclass
class PilotsLeft:
    """Live pilots of a site or CE that a policy does not have: they get no more jobs."""

    site: str
    ce: str
    pilots: int


@dataclass
class PolicyDocument:
    version: int
    text: str
    applied_at: float
    applied_by: str
    warnings: List[str] = field(default_factory=list)
    reason: str = ""
    properties: List[str] = field(default_factory=list)
    """Consequences of the draw rule for shares; not errors."""
    stranded: List[Stranded] = field(default_factory=list)
    """Groups and owners with waiting jobs that the change keeps from starting, most jobs first."""
    stranded_jobs: int = 0
    """All such jobs."""
    pilots_left: List[PilotsLeft] = field(default_factory=list)


@dataclass
class PolicyChange:
    text: PolicyText
    dry_run: bool = False
    reason: Message = ""
    expect: Optional[Id] = None
    """Refuse it unless this version is in force: two administrators do not undo each other's work unseen."""


@dataclass
class PolicyVersion:
    """One line of the history."""

    version: int
    applied_at: float
    applied_by: str
    reason: str = ""


@dataclass
class PolicyVersionsPage:
    """Newest first."""

    versions: List[PolicyVersion] = field(default_factory=list)
    next: Optional[int] = None
    """Give it as `after` for the next page; None: this was the last."""


@dataclass
class PolicyRollback:
    """Apply the text of an earlier version again, as a new version."""

    version: Id
    reason: Message = ""
    expect: Optional[Id] = None
    """Refuse it unless this version is in force."""


SHOW_POLICY = ApiCall("GET", "/v1/policy", NoRequest, PolicyDocument, ADMINISTRATORS)
CHANGE_POLICY = ApiCall("PUT", "/v1/policy", PolicyChange, PolicyDocument, ADMINISTRATORS)
LIST_VERSIONS = ApiCall("GET", "/v1/policy/versions", PageQuery, PolicyVersionsPage, ADMINISTRATORS)
SHOW_VERSION = ApiCall("GET", "/v1/policy/versions/{version}", NoRequest, PolicyDocument, ADMINISTRATORS)
ROLL_BACK = ApiCall("POST", "/v1/policy/rollback", PolicyRollback, PolicyDocument, ADMINISTRATORS)
