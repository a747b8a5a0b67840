"""The versions of the policy, and what a change of it leaves behind; parts of wire/people.py's protocol."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import List, Optional

from pilotage.wire.limits import Id, Words


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
    reason: Words = ""
    expect: Optional[Id] = None
    """Refuse it unless this version is in force."""


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
