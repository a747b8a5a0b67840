"""Messages about the match of jobs with computing elements. Rules of bodies, instants and errors: wire/__init__.py."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, Dict, List, Optional

from pilotage.wire.call import PERSON, ApiCall, NoRequest
from pilotage.wire.ces import CeName, CeQuery
from pilotage.wire.limits import Bounds, Id, Name
from pilotage.wire.submissions import Description

MAX_MATCHED_CES = 1000
"""CEs of one report."""


@dataclass
class AttributeValue:
    """An attribute that a sub-expression names, with the value that it saw."""

    name: str
    value: str = ""
    """The value as a ClassAd constant, perhaps cut; empty: the ad does not have the attribute."""
    nearest: str = ""
    """The most similar name that the ad has, if it does not have the attribute."""
    is_unknown: bool = False
    """It is absent because each node has its own value."""


@dataclass
class SubExpression:
    """A sub-expression that said no."""

    expression: str
    outcome: str
    """Its value: false, undefined, error; "never true" if no value of unknown attributes makes it true."""
    text: str
    """All of it as one sentence."""
    side: str = "job"
    """Whose Requirements it belongs to: job or ce."""
    hosts: str = ""
    """The hosts that it holds for; empty: all."""
    needed: bool = True
    """The value that was needed: false below `!`."""
    seen: List[AttributeValue] = field(default_factory=list)
    where: List[str] = field(default_factory=list)
    """The tests of conditionals that chose its branch."""
    within: List[str] = field(default_factory=list)
    """The attributes of the ad whose definitions lead to it."""


@dataclass
class CeMatch:
    """The answer of the match for one CE."""

    ce: str
    verdict: str
    """yes, full, closed, refused (by the CE's Requirements), no hosts, impossible, or unfit (by another condition).

    unasked: the Requirements are too large to ask all CEs in one question."""
    site: str = ""
    reason: str = ""
    """Why it is not yes."""
    state: str = ""
    """Why no pilots are submitted there now, besides the match: disabled, paused and so on; empty: it is active."""
    rank: Optional[float] = None
    """None: Rank has no number there."""
    residual: str = ""
    """The Requirements after all that the CE fixes; nodes decide it."""
    host_classes: Optional[int] = None
    """Classes of equal hosts that the CE tells; None: they are not known."""
    fitting_classes: Optional[int] = None
    """Classes whose hosts may satisfy the residual."""
    flags: List[str] = field(default_factory=list)
    """Native arguments that a pilot would be submitted with."""
    unmapped: str = ""
    """The part of the residual that no flag expresses: the match on the node decides it."""
    forwarding: str = ""
    """Why parts are unmapped, or why no pilot would be submitted."""
    hook: str = ""
    """The site's program that decides further at each submission: it may add arguments, or refuse. It was not run."""
    hook_environment: Dict[str, str] = field(default_factory=dict)
    """The environment that it would get; long values are cut."""
    updated: Optional[float] = None
    """The instant of the facts; None: not known."""
    is_expired: bool = False
    """The facts are too old: facts that change all the time are unknown."""
    refusals: List[SubExpression] = field(default_factory=list)


@dataclass
class MatchRequest:
    """Match a job with all CEs. Exactly one of `job` and `description` must be set."""

    job: Optional[Id] = None
    description: Optional[Description] = None
    """A job that need not exist, with the names of docs/reference/job-description.md."""
    owner: Name = ""
    """Match as this owner, with `description`; empty: the caller. Others need a right to see that owner's jobs."""
    group: Name = ""
    """Empty: the group of the token."""
    ce: CeName = ""
    """Only this CE."""
    limit: Annotated[int, Bounds(low=1, high=MAX_MATCHED_CES)] = 200
    """The most CEs in the answer."""


@dataclass
class MatchReport:
    """The match of one requester with the CEs: CEs that fit first, by rank."""

    owner: str
    group: str
    requirements: str
    """Requirements, HostRequirements and the closeness to OutputSE as one expression; empty: nothing is asked."""
    ad: str
    """The requester's ad."""
    verdicts: Dict[str, int] = field(default_factory=dict)
    """CEs by verdict, also of CEs beyond `limit`."""
    ces: List[CeMatch] = field(default_factory=list)
    warnings: List[str] = field(default_factory=list)
    """Probable mistakes in the requirements."""
    job_state: str = ""
    """The state of the job in question. Unless it waits, the answer is for a new job like it; empty: no job."""


@dataclass
class CeAdReport:
    """The ad of a CE as it is matched."""

    ce: str
    ad: str
    """The whole ad, in the form in which CEs publish it."""
    fixed: str
    """The part that holds on each of its hosts."""
    updated: Optional[float] = None
    """None: there are no facts of the batch system yet."""
    expires: Optional[float] = None
    is_expired: bool = False
    problem: str = ""
    """Why the batch system told no facts at the last attempt."""
    hosts: List[HostClassAd] = field(default_factory=list)
    suspicions: List[str] = field(default_factory=list)
    """Legal things that are probably mistakes."""


@dataclass
class HostClassAd:
    """A class of equal hosts of a CE."""

    count: int
    attributes: Dict[str, str] = field(default_factory=dict)
    """Values as ClassAd constants."""
    hosts: List[str] = field(default_factory=list)
    """The first names in the batch system."""


@dataclass
class RequesterAd:
    """The requester's ad of a job."""

    job: int
    queue: int
    owner: str
    group: str
    ad: str


MATCH_CES = ApiCall("POST", "/v1/matchmaking", MatchRequest, MatchReport, PERSON)
SHOW_CE_AD = ApiCall("GET", "/v1/ces/ad", CeQuery, CeAdReport, PERSON)
SHOW_JOB_AD = ApiCall("GET", "/v1/jobs/{job}/ad", NoRequest, RequesterAd, PERSON)
