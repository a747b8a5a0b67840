"""A cache of the offer of each pilot, and of its offer classes.

A pilot asks repeatedly with the same node. The cache keeps the constant part of its offer. Only the remaining sizes
are then needed to find the offer class (`core/queues/offer_classes.py`).
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from pilotage.core.brokering.ce_ad import CeAd
from pilotage.core.brokering.pilot_ads import node_ad
from pilotage.core.classads import ClassAd
from pilotage.core.policy import Policy
from pilotage.core.policy.isolation import ISOLATED_TAG
from pilotage.core.queues.fit import Offer, PrivateIdentity, remaining_sizes
from pilotage.core.queues.identity import NONE, QueueIdentity
from pilotage.core.queues.index import QueueIndex
from pilotage.core.queues.limits import Limit
from pilotage.core.queues.offer_classes import OfferClass
from pilotage.core.queues.offer_history import OfferRecord
from pilotage.store.tables.pilots import PilotRow
from pilotage.wire.pilot import Node

_ISOLATED = frozenset({ISOLATED_TAG})

MAX_PILOTS = 16384
"""Pilots in the cache. The oldest entry is evicted first."""

MAX_CLASSES = 64
"""Offer classes cached per pilot."""


class Remaining(NamedTuple):
    """The remaining part of an offer, and the owner that it is bound to."""

    processors: int
    memory: int
    disk: int
    only_owner: str | None

    def without(self, taken: QueueIdentity) -> Remaining:
        """The remaining part after one more job of this queue, with the same owner."""
        return Remaining(*remaining_sizes(self.processors, self.memory, self.disk, taken), self.only_owner)

    def bound_to(self, owner: str) -> Remaining:
        return Remaining(self.processors, self.memory, self.disk, owner)


class CachedOfferClass:
    """One offer class of one pilot."""

    __slots__ = ("offer_class", "records")

    def __init__(self, offer_class: OfferClass) -> None:
        self.offer_class = offer_class
        self.records: dict[int, OfferRecord[tuple[PilotRow, Node]]] = {}
        """Records of `pool.offers.stats`, by number of processors."""


@dataclass(slots=True)
class PilotOffers:
    """The constant part of the offers of one pilot, with its offer classes."""

    policy: Policy
    node: Node
    base: Offer
    _classes: dict[tuple[tuple[int, ...], str | None, tuple[Limit, ...]], CachedOfferClass] = field(
        default_factory=dict
    )
    _whole: Remaining | None = None
    _node_ad: tuple[CeAd | None, Node, ClassAd] | None = None

    def serves(self, policy: Policy, node: Node) -> bool:
        """Whether an offer of `node` under `policy` equals the last one, apart from its time and its free disk."""
        mine = self.node
        return policy is self.policy and (
            mine is node
            or (
                mine.processors == node.processors
                and mine.memory == node.memory
                and mine.platform == node.platform
                and mine.tags == node.tags
                and mine.isolation == node.isolation
                and mine.other_folders == node.other_folders
            )
        )

    def whole(self, pilot: PilotRow) -> Remaining:
        """The whole pilot, bound to its present owner."""
        whole, disk = self._whole, self.node.disk
        if whole is None or whole.only_owner != pilot.only_owner or whole.disk != disk:
            base = self.base
            whole = self._whole = Remaining(base.processors, base.memory, disk, pilot.only_owner)
        return whole

    def unbound(self, pilot: PilotRow) -> Remaining:
        """The whole pilot, including the part in use, as if it had no owner."""
        base, ce = self.base, self.policy.ces.get(pilot.ce)
        disk = (ce.pilot_disk if ce else 0) or self.node.disk
        return Remaining(pilot.processors or base.processors, pilot.memory or base.memory, disk, None)

    def node_ad(self, ce: CeAd | None) -> ClassAd:
        """The constant part of the pilot's ad, made again when its CE or its node changes."""
        node, cached = self.node, self._node_ad
        if (
            cached is None
            or cached[0] is not ce
            or (cached[1] is not node and not _tells_the_same(cached[1], node))
        ):
            ad = node_ad(self.base, ce, node.hostname, node.platform, node.attributes)
            cached = self._node_ad = (ce, node, ad)
        return cached[2]

    def offer(self, rest: Remaining) -> Offer:
        return replace(
            self.base,
            cpu_time=self.node.cpu_left,
            wall_time=self.node.wall_left,
            processors=rest.processors,
            memory=rest.memory,
            disk=rest.disk,
            only_owner=rest.only_owner,
        )

    def offer_class(self, index: QueueIndex, rest: Remaining, closed: tuple[Limit, ...]) -> CachedOfferClass:
        """The offer class of `rest` while the limits `closed` let no job start."""
        processors, memory, disk, only_owner = rest
        node = self.node
        sizes = index.bucket_sizes(node.cpu_left, processors, memory, node.wall_left, disk)
        key = (sizes, only_owner, closed)
        cached = self._classes.get(key)
        if cached is None or cached.offer_class.evicted:
            if len(self._classes) >= MAX_CLASSES:
                self._classes.clear()
            cached = self._classes[key] = CachedOfferClass(index.offer_class(self.offer(rest), closed))
        return cached


class OfferCache:
    """The offers of the pilots that asked recently."""

    def __init__(self, account: str = "") -> None:
        """`account`: the person whose account all pilots run under."""
        self._account = account
        self._by_pilot: OrderedDict[int, PilotOffers] = OrderedDict()
        self._banned: dict[str, frozenset[str]] = {}
        """Banned owners by site; "": at all sites."""
        self._down: frozenset[str] = NONE

    def set_down(self, sites: frozenset[str]) -> None:
        """Replace the sites where an administrator lets no job start."""
        self._down = sites
        self._by_pilot.clear()

    def is_down(self, site: str) -> bool:
        return site in self._down

    def set_banned(self, banned: Mapping[str, frozenset[str]]) -> None:
        """Replace the banned owners by site; "": at all sites."""
        self._banned = dict(banned)
        self._by_pilot.clear()

    def banned_at(self, site: str) -> frozenset[str]:
        """The owners whose jobs may not run at a site."""
        return self._banned.get(site, NONE) | self._banned.get("", NONE)

    def offer_of(self, policy: Policy, pilot: PilotRow, node: Node) -> Offer:
        """The offer of a whole pilot with this node."""
        banned, down = self.banned_at(pilot.site), self.is_down(pilot.site)
        return offer_of(policy, pilot, node, banned, down=down, account=self._account)

    def of(self, policy: Policy, pilot: PilotRow, node: Node) -> PilotOffers:
        offers = self._by_pilot.get(pilot.id)
        if offers is None or not offers.serves(policy, node):
            offers = self._by_pilot[pilot.id] = PilotOffers(
                policy,
                node,
                self.offer_of(policy, pilot, node),
            )
            if len(self._by_pilot) > MAX_PILOTS:
                self._by_pilot.popitem(last=False)
        offers.node = node
        return offers


def _tells_the_same(one: Node, other: Node) -> bool:
    return (
        one.hostname == other.hostname
        and one.platform == other.platform
        and one.attributes == other.attributes
    )


def offer_of(
    policy: Policy,
    pilot: PilotRow,
    node: Node,
    banned: frozenset[str] = NONE,
    *,
    down: bool = False,
    account: str = "",
) -> Offer:
    """The offer of a whole pilot: the facts of its row, and the node that the pilot reported.

    `banned`: owners who are banned from its site. `down`: an administrator lets no job start at its site.
    `account`: the person whose account it runs under.
    """
    ce = policy.ces.get(pilot.ce)
    site = policy.sites.get(pilot.site)
    identities: tuple[PrivateIdentity, ...] = ()
    if pilot.pilot_type == "private":
        sharing = "JOB_SHARING" in policy.properties(pilot.owner, pilot.group)
        identities = (PrivateIdentity(pilot.owner, pilot.group, sharing),)
    isolated = bool(node.isolation)
    job_types = None if site is None or site.job_types is None else frozenset(site.job_types)
    return Offer(
        site=pilot.site,
        ce=pilot.ce,
        cpu_time=node.cpu_left,
        setup=ce.setup if ce else "",
        pilot_type=pilot.pilot_type,
        identities=identities,
        only_owner=pilot.only_owner,
        platforms=policy.compatible(node.platform),
        tags=frozenset(node.tags) | frozenset(ce.tags if ce else ()) | (_ISOLATED if isolated else NONE),
        required_tags=frozenset(ce.required_tags if ce else ()),
        # A pilot cannot offer more than its batch job was given.
        processors=min(node.processors, pilot.processors) if pilot.processors else node.processors,
        memory=min(node.memory, pilot.memory) if pilot.memory and node.memory else node.memory,
        job_types=job_types,
        closed=(
            site is None or site.banned or down or ce is None or (ce.isolation == "require" and not isolated)
        ),
        isolated=isolated,
        banned_owners=banned,
        wall_time=node.wall_left,
        disk=node.disk,
        shared_folders=ce.shared_folders if ce else (),
        account=account,
        other_folders=frozenset(node.other_folders),
    )
