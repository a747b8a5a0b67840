"""Messages about sites and partitions. Rules of bodies, instants and errors: wire/__init__.py."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Dict, List, Optional

from pilotage.wire.call import PERSON, ApiCall, NoRequest
from pilotage.wire.limits import GivenName, Instant, Message, Name


@dataclass
class SiteSummary:
    name: str
    ces: List[str]
    pilots: Dict[str, int]
    """Live pilots by state."""
    running: int
    """Jobs held there now."""
    waiting: int
    """Waiting jobs whose task queue may run there by its site lists."""
    state: str = "normal"
    """normal, drain or down: by its administrators, or by the policy, which stands above them."""
    reason: str = ""
    changed_by: str = ""
    """Who set the state; empty: the policy, or nobody."""
    since: Optional[float] = None
    until: Optional[float] = None
    """When it becomes normal by itself; None: never."""
    slots: int = 0
    """One-core jobs that can run there at the same time, by the limits of its CEs."""


@dataclass
class SiteStateRequest:
    """Drain a site, take it down, or make it normal."""

    site: GivenName
    state: Name
    until: Optional[Instant] = None
    """When it becomes normal by itself; None: never."""
    reason: Message = ""


@dataclass
class PartitionSummary:
    """CEs by the name that Slurm's commands give them."""

    name: str
    default: bool
    """Jobs that name no partition go there."""
    ces: List[str]
    """All its CEs."""
    sites: List[str]
    """Its sites, if it has whole sites only; `*`: every site. Empty: it names CEs."""
    state: str
    """up, drain or down, by the administrators of its sites and CEs: that of its best CE."""
    wall: float
    """The longest time of a job in a new pilot there, in seconds; 0: it has no CE."""


LIST_PARTITIONS = ApiCall("GET", "/v1/partitions", NoRequest, List[PartitionSummary], PERSON)
LIST_SITES = ApiCall("GET", "/v1/sites", NoRequest, List[SiteSummary], PERSON)
# Administrators of a site change it, too.
SET_SITE_STATE = ApiCall("POST", "/v1/sites/state", SiteStateRequest, SiteSummary, PERSON)
