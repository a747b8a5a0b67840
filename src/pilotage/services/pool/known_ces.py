"""The CEs in memory: the answers of their batch systems, and the ads and matches that are made from them."""

from __future__ import annotations

from dataclasses import dataclass, field

from pilotage.core.glue.information import CeInformation
from pilotage.services.pool.brokering import PoolBroker
from pilotage.services.pool.ce_ads import CeAds
from pilotage.services.pool.forwardings import Forwardings
from pilotage.services.pool.published_information import PublishedInformations
from pilotage.wire.pilot import Node


@dataclass(slots=True)
class KnownCes:
    """The state of the CEs by name. Threads that explain read it beside the writer."""

    nodes: dict[str, Node] = field(default_factory=dict)
    """The node that a new pilot of each CE will find. The first cycle of the CE sets it."""
    changed_at: dict[str, float] = field(default_factory=dict)
    """When the policy last changed each CE. Offers of pilots that started before may differ from new offers."""
    information: dict[str, CeInformation] = field(default_factory=dict)
    """The last answer of each CE's batch system, as the store has it. `published` applies the policy."""
    published: PublishedInformations = field(default_factory=PublishedInformations)
    """The information of CEs, made from `information` and the policy."""
    ads: CeAds = field(default_factory=CeAds)
    """The ads made from `published`."""
    forwardings: Forwardings = field(default_factory=Forwardings)
    """The flags of requirements at the CEs, as long as the facts of a CE are the same."""
    brokering: PoolBroker = field(default_factory=PoolBroker)
    """Matches queues with CEs, and keeps the answers."""
