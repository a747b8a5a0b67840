"""The one predicate: does this task queue fit this offer? (docs/reference/rules.md, section 2)

The match, `why`, the demand for pilots and the simulator all ask here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from enum import StrEnum
from math import inf
from operator import attrgetter
from typing import NamedTuple

from pilotage.core.folders import shows
from pilotage.core.queues.identity import NONE, QueueIdentity


class Condition(StrEnum):
    """The conditions in the order in which they are tried; `NoMatch` counts by these values."""

    MEMBERSHIP = "membership"
    """The policy no longer knows its group, or its owner as a member of it: asked before all others."""
    SITE_CLOSED = "site-closed"
    """The site is banned in the policy, or the policy no longer has it or its CE."""
    OWNER = "owner"
    BANNED_OWNER = "banned-owner"
    """An administrator has banned the owner from the site (`pilotage ban`)."""
    SETUP = "setup"
    CPU_TIME = "cpu-time"
    WALL_TIME = "wall-time"
    PILOT_TYPE = "pilot-type"
    SITE = "site"
    BANNED_SITE = "banned-site"
    GRID_CE = "grid-ce"
    PLATFORM = "platform"
    TAGS = "tags"
    REQUIRED_TAGS = "required-tags"
    PROCESSORS = "processors"
    MEMORY = "memory"
    DISK = "disk"
    JOB_TYPE = "job-type"
    FOLDER = "folder"
    """The CE does not share a folder of a job in place."""
    ACCOUNT = "account"
    """A job in place runs under the account of its owner only."""
    NODE_FOLDER = "node-folder"
    """The node was found to have another folder at that path."""
    REQUIREMENTS = "requirements"
    """Requirements, HostRequirements or the distance to OutputSE: the queue's `match_text`."""
    LIMIT = "limit"
    """A running limit or start delay of the site or CE: checked with the match, after the others."""
    BACKGROUND = "background"
    """All its jobs have UserPriority 0 and another queue of its entity fits."""


@dataclass(frozen=True, slots=True)
class PrivateIdentity:
    """On whose behalf a private pilot runs."""

    owner: str
    group: str
    job_sharing: bool = False
    """The group has JOB_SHARING: the pilot serves every owner of it."""

    def serves(self, queue: QueueIdentity) -> bool:
        return self.group == queue.group and (self.job_sharing or self.owner == queue.owner)


@dataclass(frozen=True, slots=True)
class AnyIdentity(PrivateIdentity):
    """The identity of a private pilot before its submission: it will be bound to any owner and group."""

    owner: str = ""
    group: str = ""

    def serves(self, queue: QueueIdentity) -> bool:
        return True


@dataclass(frozen=True, slots=True)
class Offer:
    """The free resources of a node, and the attributes of its pilot.

    `memory` and `disk` in MB, 0 for not known; `cpu_time` in seconds of a reference core; `wall_time` in seconds by
    the clock; `job_types` None for any.
    """

    site: str
    ce: str
    cpu_time: float
    setup: str = ""
    pilot_type: str = "generic"
    identities: tuple[PrivateIdentity, ...] = ()
    """A private pilot's: one of them must serve the queue."""
    only_owner: str | None = None
    """The owner that the pilot is bound to, since its node isolates nobody; None: anybody."""
    platforms: frozenset[str] = field(default=NONE)
    tags: frozenset[str] = field(default=NONE)
    required_tags: frozenset[str] = field(default=NONE)
    processors: int = 1
    memory: int = 0
    job_types: frozenset[str] | None = None
    closed: bool = False
    """The policy lets nothing start there now."""
    isolated: bool = False
    """The pilot isolates its payloads, so it serves several owners at the same time."""
    banned_owners: frozenset[str] = field(default=NONE)
    """Owners whose jobs may not run at the site."""
    wall_time: float = inf
    disk: int = 0
    shared_folders: tuple[str, ...] = ()
    """Folders that the nodes of the CE share with the machines where jobs in place are submitted."""
    account: str = ""
    """The person whose account the pilot runs under."""
    other_folders: frozenset[str] = field(default=NONE)
    """Folders of jobs that are other ones on this node."""


_NAMES = tuple(attribute.name for attribute in fields(Offer))
_VALUES = attrgetter(*_NAMES)
_CPU_TIME, _PROCESSORS, _MEMORY, _WALL_TIME, _DISK = (
    _NAMES.index(name) for name in ("cpu_time", "processors", "memory", "wall_time", "disk")
)


def with_sizes(
    offer: Offer, cpu_time: float, processors: int, memory: int, wall_time: float, disk: int
) -> Offer:
    """The same offer with other sizes. Asked by many takes: `dataclasses.replace` takes four times as long."""
    values = list(_VALUES(offer))
    values[_CPU_TIME], values[_PROCESSORS], values[_MEMORY] = cpu_time, processors, memory
    values[_WALL_TIME], values[_DISK] = wall_time, disk
    return Offer(*values)


RequirementsHold = Callable[[QueueIdentity], bool]
"""Whether the `match_text` of this queue is true for the offer as an ad. Not asked for a queue without one."""


def fits(queue: QueueIdentity, offer: Offer, holds: RequirementsHold) -> bool:
    return first_failure(queue, offer, holds) is None


def first_failure(queue: QueueIdentity, offer: Offer, holds: RequirementsHold) -> Condition | None:
    """The first condition at which `queue` falls for `offer`, or None if it fits."""
    failed = static_failure(queue, offer)
    if failed is None and queue.match_text and not holds(queue):
        return Condition.REQUIREMENTS
    return failed


def failures(queue: QueueIdentity, offer: Offer, holds: RequirementsHold) -> tuple[Condition, ...]:
    """All conditions at which `queue` falls for `offer`, in their order; none if it fits."""
    failed = [condition for condition, rule in STATIC.items() if not rule.met(queue, offer)]
    if queue.match_text and not holds(queue):
        failed.append(Condition.REQUIREMENTS)
    return tuple(failed)


def static_failure(queue: QueueIdentity, offer: Offer) -> Condition | None:
    """The first failed condition, Requirements left out: an offer class decides all the others."""
    for condition, rule in STATIC.items():
        if not rule.met(queue, offer):
            return condition
    return None


def remaining_sizes(processors: int, memory: int, disk: int, taken: QueueIdentity) -> tuple[int, int, int]:
    """The processors, memory and disk (MB, 0: not known) of an offer that a job of this queue leaves."""
    return (
        processors - taken.processors,
        max(1, memory - taken.memory) if memory else 0,
        max(1, disk - taken.disk) if disk else 0,
    )


def binds_owner(pilot_type: str, *, isolated: bool) -> bool:
    """Whether a pilot's first job binds it to its owner: a private pilot's identity says whom it serves."""
    return not isolated and pilot_type != "private"


def concurrent_jobs(queue: QueueIdentity, offer: Offer) -> int:
    """How many jobs of `queue` one offer that it fits takes beside each other: how often it fits as it shrinks."""
    return jobs_beside(queue, offer.processors, offer.memory, offer.disk)


def jobs_beside(queue: QueueIdentity, processors: int, memory: int, disk: int) -> int:
    """The number of `concurrent_jobs` for these sizes."""
    count = processors // max(1, queue.processors)
    if memory and queue.memory:
        count = min(count, memory // queue.memory)
    if disk and queue.disk:
        count = min(count, disk // queue.disk)
    return count


def _site_listed(queue: QueueIdentity, site: str) -> bool:
    return not queue.sites or site in queue.sites


def _owner_served(queue: QueueIdentity, offer: Offer) -> bool:
    if offer.only_owner is not None and offer.only_owner != queue.owner:
        return False
    if offer.pilot_type != "private":
        return True
    return any(identity.serves(queue) for identity in offer.identities)


def shares_all(shared: Sequence[str], folders: Iterable[str]) -> bool:
    """Whether each of `folders` is one of the shared folders or lies in one of them."""
    return all(shows(shared, folder) for folder in folders)


def _pilot_type_accepted(queue: QueueIdentity, offer: Offer) -> bool:
    if queue.force_generic:
        return offer.pilot_type == "generic"
    return not queue.pilot_types or offer.pilot_type in queue.pilot_types


class Static(NamedTuple):
    """One condition that an offer class decides, and the attributes of queue and offer that it reads.

    Equal attributes give equal answers (vectorised_matching.py evaluates each combination once).
    """

    met: Callable[[QueueIdentity, Offer], bool]
    of_queue: tuple[str, ...]
    of_offer: tuple[str, ...]


STATIC: Mapping[Condition, Static] = {
    Condition.SITE_CLOSED: Static(lambda queue, offer: not offer.closed, (), ("closed",)),
    Condition.OWNER: Static(_owner_served, ("owner", "group"), ("only_owner", "pilot_type", "identities")),
    Condition.BANNED_OWNER: Static(
        lambda queue, offer: queue.owner not in offer.banned_owners, ("owner",), ("banned_owners",)
    ),
    Condition.SETUP: Static(lambda queue, offer: queue.setup == offer.setup, ("setup",), ("setup",)),
    Condition.CPU_TIME: Static(
        lambda queue, offer: queue.cpu_time <= offer.cpu_time, ("cpu_time",), ("cpu_time",)
    ),
    Condition.WALL_TIME: Static(
        lambda queue, offer: queue.wall_time <= offer.wall_time, ("wall_time",), ("wall_time",)
    ),
    Condition.PILOT_TYPE: Static(_pilot_type_accepted, ("force_generic", "pilot_types"), ("pilot_type",)),
    Condition.SITE: Static(lambda queue, offer: _site_listed(queue, offer.site), ("sites",), ("site",)),
    Condition.BANNED_SITE: Static(
        lambda queue, offer: offer.site not in queue.banned_sites, ("banned_sites",), ("site",)
    ),
    Condition.GRID_CE: Static(
        lambda queue, offer: not queue.grid_ces or offer.ce in queue.grid_ces, ("grid_ces",), ("ce",)
    ),
    Condition.PLATFORM: Static(
        lambda queue, offer: not queue.platforms or bool(queue.platforms & offer.platforms),
        ("platforms",),
        ("platforms",),
    ),
    Condition.TAGS: Static(lambda queue, offer: queue.tags <= offer.tags, ("tags",), ("tags",)),
    Condition.REQUIRED_TAGS: Static(
        lambda queue, offer: offer.required_tags <= queue.tags, ("tags",), ("required_tags",)
    ),
    Condition.PROCESSORS: Static(
        lambda queue, offer: queue.processors <= offer.processors, ("processors",), ("processors",)
    ),
    Condition.MEMORY: Static(
        lambda queue, offer: not offer.memory or queue.memory <= offer.memory, ("memory",), ("memory",)
    ),
    Condition.DISK: Static(
        lambda queue, offer: not offer.disk or queue.disk <= offer.disk, ("disk",), ("disk",)
    ),
    Condition.JOB_TYPE: Static(
        lambda queue, offer: offer.job_types is None or queue.job_type in offer.job_types,
        ("job_type",),
        ("job_types",),
    ),
    Condition.FOLDER: Static(
        lambda queue, offer: shares_all(offer.shared_folders, queue.folders),
        ("folders",),
        ("shared_folders",),
    ),
    Condition.ACCOUNT: Static(
        lambda queue, offer: queue.account in ("", offer.account), ("account",), ("account",)
    ),
    Condition.NODE_FOLDER: Static(
        lambda queue, offer: queue.folders.isdisjoint(offer.other_folders), ("folders",), ("other_folders",)
    ),
}
