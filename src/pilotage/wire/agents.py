"""Messages between an agent and the server, protocol 1. Rules of bodies and errors: wire/__init__.py.

An agent needs a token with the group property AGENT. It may stop at any instant: another agent adopts the masks that
exist, and makes only the rest. Each message about an element carries the epoch that came with it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, Any, Dict, List, Optional

from pilotage.wire.call import AGENTS, PERSON, ApiCall
from pilotage.wire.limits import MAX_INT64, Bounds, Count, Cursor, GivenName, Id, Int32, Message, Name
from pilotage.wire.queries import EndedQuery

AGENT_PROTOCOL = 1
MAX_PULL = 200
"""The most elements of one sync."""
MAX_MASKS = 1000
"""The most masks of one message."""
MAX_RANGES = 12_000
"""Ranges in one mask: of files, and of their lumis."""
MAX_HELD = 10_000
"""The most elements that an agent may hold unsplit."""

MaskDocument = Annotated[Dict[Name, Any], Bounds(longest=8)]
Slots = Annotated[Dict[Name, Count], Bounds(longest=100_000)]


@dataclass
class JoinRequest:
    """An agent starts, or joins again after its lease was over. `nonce` is drawn at each start of the process.

    Another nonce with the same name supersedes the earlier process: its elements go back to the queue.
    """

    name: GivenName
    team: GivenName
    nonce: GivenName
    protocol: Int32 = AGENT_PROTOCOL
    version: Name = ""
    host: Name = ""


@dataclass
class JoinResponse:
    agent: int
    lease: float
    """Seconds after a sync for which the agent's elements remain its own."""
    period: float
    """Seconds until the next sync is due, at the latest."""


@dataclass
class ElementReference:
    """An element and the epoch of its offer."""

    element: Id
    epoch: Int32


@dataclass
class ElementRelease:
    """Give an element back unsplit. Masks that were posted stay."""

    element: Id
    epoch: Int32
    reason: Message = ""


@dataclass
class SyncRequest:
    """One turn of an agent: renews its lease, confirms, gives back and pulls, in this order.

    `number` rises with every pull that was answered; sent again with the same number it gets the same elements.
    """

    nonce: GivenName
    number: Int32 = 0
    want: Annotated[int, Bounds(low=0, high=MAX_PULL)] = 0
    """The most elements to pull now; 0: none."""
    slots: Slots = field(default_factory=dict)
    """The slots of each site that the agent wants to fill. The server serves its own number if that is lower."""
    holding: Annotated[List[ElementReference], Bounds(longest=MAX_HELD)] = field(default_factory=list)
    """All unsplit elements of the agent. New ones among them are thereby confirmed."""
    releases: Annotated[List[ElementRelease], Bounds(longest=MAX_HELD)] = field(default_factory=list)
    draining: bool = False


@dataclass
class Splitting:
    """How a step is split: an algorithm of docs/reference/requests.md and its parameters."""

    algorithm: str
    parameters: Dict[str, Any] = field(default_factory=dict)


@dataclass
class OfferedElement:
    id: int
    epoch: int
    request: int
    step: str
    type: str
    priority: int
    site: str
    """The site for which it was admitted, and at which its jobs count."""
    jobs: int
    """Estimated."""
    splitting: Splitting
    mask: Optional[Dict[str, Any]] = None
    """A mask that restricts it; None: the whole of its blocks."""
    existing: int = 0
    """The number of masks that an earlier holder has posted."""
    closed: bool = True
    """No more files will come to its blocks."""


@dataclass
class SiteOfAgent:
    """A site as the agent may use it."""

    name: str
    state: str
    """normal, drain or down."""
    slots: int
    """This agent's part of the site's slots, running jobs included."""
    running: int
    """Running jobs of this agent there."""
    waiting: List[List[int]] = field(default_factory=list)
    """[priority, jobs] of the agent's jobs that do not run: made or released; unsplit elements are not included."""


@dataclass
class SyncResponse:
    number: int
    """The number of the pull that `elements` answers."""
    lease: float
    period: float
    elements: List[OfferedElement] = field(default_factory=list)
    stop: List[int] = field(default_factory=list)
    """Elements of `holding` that are no longer the agent's. Post nothing more for them."""
    sites: List[SiteOfAgent] = field(default_factory=list)
    agents: int = 1
    """Live agents of the team that do not drain, itself included."""
    drain: bool = False
    """An administrator wants this agent to drain."""
    room: int = 0
    """Jobs that the agent's owner limit still allows."""


@dataclass
class CataloguedFile:
    id: int
    name: str
    size: int = 0
    events: int = 0
    lumis: List[List[int]] = field(default_factory=list)
    """[run, first, last]."""
    block: int = 0
    parent: int = 0
    """The element job that wrote it; 0: none."""


@dataclass
class FilesPage:
    files: List[CataloguedFile]
    next: int = 0
    """The cursor of the next page; 0: this is the last page."""


@dataclass
class MasksPage:
    masks: List[Dict[str, Any]]
    next: int = 0


@dataclass
class PostMasks:
    """Make jobs of an element. Masks that exist already change nothing."""

    epoch: Int32
    masks: Annotated[List[MaskDocument], Bounds(longest=MAX_MASKS)] = field(default_factory=list)
    """Each as of `core/splitting/mask.py`: {"files": [[file, first, events, lumis?], ...], "events": ...}."""
    last: bool = False
    """With these masks the element is split: it passes from the agent to the server."""
    total: Annotated[int, Bounds(low=0, high=MAX_INT64)] = 0
    """With `last`: the number of all masks of the element, also of earlier holders."""
    failure: Message = ""
    """With `last`: the element cannot be split, and why."""


@dataclass
class PostedMasks:
    made: int
    known: int
    """Masks that existed already."""
    superseded: bool = False
    """The element is no longer the agent's; nothing was made."""


@dataclass
class AgentSummary:
    """An agent as people see it."""

    name: str
    team: str
    owner: str
    state: str
    """live, draining, lost (its lease is over) or ended."""
    host: str
    version: str
    joined: float
    seen: float
    lease_until: float
    elements: Dict[str, int] = field(default_factory=dict)
    """The number of its elements in each state."""
    waiting: int = 0
    """Its jobs that do not run yet."""
    running: int = 0
    id: int = 0
    drain_since: Optional[float] = None
    """When it began to drain; None: it does not drain."""
    drain_jobs: int = 0
    """Its unfinished jobs at `drain_since`."""


@dataclass
class AgentList:
    agents: List[AgentSummary] = field(default_factory=list)


@dataclass
class AgentAction:
    """Drain, enable or remove an agent."""

    name: GivenName


@dataclass
class HeldElementQuery:
    """A page of the files, or of the masks, of an element that an agent has."""

    epoch: Annotated[Int32, "of the offer"]
    after: Annotated[Cursor, "`next` of the page before"] = 0


JOIN = ApiCall("POST", "/v1/agents/join", JoinRequest, JoinResponse, AGENTS, repeatable=True)
SYNC = ApiCall("POST", "/v1/agents/{agent}/sync", SyncRequest, SyncResponse, AGENTS, repeatable=True)
_ELEMENT = "/v1/agents/{agent}/elements/{element}"
READ_FILES = ApiCall("GET", _ELEMENT + "/files", HeldElementQuery, FilesPage, AGENTS)
READ_MASKS = ApiCall("GET", _ELEMENT + "/jobs", HeldElementQuery, MasksPage, AGENTS)
POST_MASKS = ApiCall("POST", _ELEMENT + "/jobs", PostMasks, PostedMasks, AGENTS, repeatable=True)
LIST_AGENTS = ApiCall("GET", "/v1/agents", EndedQuery, AgentList, PERSON)
# Everybody drains, enables and removes their own.
DRAIN_AGENT = ApiCall("POST", "/v1/agents/drain", AgentAction, AgentSummary, PERSON)
ENABLE_AGENT = ApiCall("POST", "/v1/agents/enable", AgentAction, AgentSummary, PERSON)
REMOVE_AGENT = ApiCall("POST", "/v1/agents/remove", AgentAction, AgentSummary, PERSON)
