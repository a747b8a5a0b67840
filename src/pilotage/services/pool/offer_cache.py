"""What a pilot offers when it asks, and of which kind that is.

A pilot asks again and again with the same node. What is the same about its offers is kept, so that only their sizes
are looked at: those decide which kind of offer it is (core/queues/candidates.py).
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from pilotage.core.policy import Policy
from pilotage.core.queues.fit import Identity, Offer, remaining_sizes
from pilotage.core.queues.identity import QueueIdentity
from pilotage.core.queues.index import QueueIndex
from pilotage.core.queues.limits import Limit
from pilotage.core.queues.offer_classes import OfferClass
from pilotage.core.queues.offer_history import OfferRecord as Noted
from pilotage.store.tables.pilots import PilotRow
from pilotage.wire.pilot import Node

PILOTS = 16384
"""So many pilots are remembered."""

KINDS = 64
"""So many kinds of offer of one pilot."""


class Remaining(NamedTuple):
    """What is left of an offer, and to whom it is bound."""

    processors: int
    memory: int
    only_owner: str | None

    def without(self, taken: QueueIdentity) -> Remaining:
        """What is left after a job of this queue, bound as before."""
        return Remaining(*remaining_sizes(self.processors, self.memory, taken), self.only_owner)

    def bound_to(self, owner: str) -> Remaining:
        return Remaining(self.processors, self.memory, owner)


class CachedKind:
    """One kind of offer of one pilot."""

    __slots__ = ("kind", "noted")

    def __init__(self, kind: OfferClass) -> None:
        self.kind = kind
        self.noted: dict[int, Noted[tuple[PilotRow, Node]]] = {}
        """As the book of kinds has it, by the number of processors."""


@dataclass(slots=True)
class PilotOffers:
    """What is the same about the offers of one pilot."""

    policy: Policy
    node: Node
    base: Offer
    _asked: dict[tuple[tuple[int, int, int], str | None, tuple[Limit, ...]], CachedKind] = field(
        default_factory=dict
    )
    _whole: Remaining | None = None

    def serves(self, policy: Policy, node: Node) -> bool:
        """Whether an offer of `node` under `policy` differs from the last one in its CPU time at most."""
        mine = self.node
        return policy is self.policy and (
            mine is node
            or (
                mine.processors == node.processors
                and mine.memory == node.memory
                and mine.platform == node.platform
                and mine.tags == node.tags
            )
        )

    def whole(self, pilot: PilotRow) -> Remaining:
        whole = self._whole
        if whole is None or whole.only_owner != pilot.only_owner:
            whole = self._whole = Remaining(self.base.processors, self.base.memory, pilot.only_owner)
        return whole

    def unbound(self, pilot: PilotRow) -> Remaining:
        """All of the pilot, whatever it runs now, were it bound to nobody."""
        base = self.base
        return Remaining(pilot.processors or base.processors, pilot.memory or base.memory, None)

    def offer(self, rest: Remaining) -> Offer:
        return replace(
            self.base,
            cpu_time=self.node.cpu_left,
            processors=rest.processors,
            memory=rest.memory,
            only_owner=rest.only_owner,
        )

    def asked(self, index: QueueIndex, rest: Remaining, closed: tuple[Limit, ...]) -> CachedKind:
        """The kind of offer that the rest is while these limits let nothing start."""
        processors, memory, only_owner = rest
        key = (index.bucket_sizes(self.node.cpu_left, processors, memory), only_owner, closed)
        asked = self._asked.get(key)
        if asked is None or asked.kind.evicted:
            if len(self._asked) >= KINDS:
                self._asked.clear()
            asked = self._asked[key] = CachedKind(index.offer_class(self.offer(rest), closed))
        return asked


class OffersOfPilots:
    """The pilots that asked lately."""

    def __init__(self) -> None:
        self._known: OrderedDict[int, PilotOffers] = OrderedDict()

    def of(self, policy: Policy, pilot: PilotRow, node: Node) -> PilotOffers:
        asking = self._known.get(pilot.id)
        if asking is None or not asking.serves(policy, node):
            asking = self._known[pilot.id] = PilotOffers(policy, node, offer_of(policy, pilot, node))
            if len(self._known) > PILOTS:
                self._known.popitem(last=False)
        asking.node = node
        return asking


def offer_of(policy: Policy, pilot: PilotRow, node: Node) -> Offer:
    """What the server knows of the pilot, and what the pilot says of its node."""
    ce = policy.ces.get(pilot.ce)
    site = policy.sites.get(pilot.site)
    identities: tuple[Identity, ...] = ()
    if pilot.pilot_type == "private":
        sharing = "JOB_SHARING" in policy.properties(pilot.owner, pilot.group)
        identities = (Identity(pilot.owner, pilot.group, sharing),)
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
        tags=frozenset(node.tags) | frozenset(ce.tags if ce else ()),
        required_tags=frozenset(ce.required_tags if ce else ()),
        # A pilot cannot offer more than its batch job was given.
        processors=min(node.processors, pilot.processors) if pilot.processors else node.processors,
        memory=min(node.memory, pilot.memory) if pilot.memory and node.memory else node.memory,
        job_types=job_types,
        closed=site is None or site.banned or ce is None,
    )
