"""The state that decides beside the queues which jobs a pilot may be offered."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from pilotage.core.queues.offer_history import OfferStats
from pilotage.services.pool.limits import RunningLimits
from pilotage.services.pool.offer_cache import OfferCache
from pilotage.services.pool.other_folders import OtherFolders
from pilotage.store.tables.bans import BanRow
from pilotage.store.tables.pilots import PilotRow
from pilotage.store.tables.site_states import SiteStateRow
from pilotage.wire.pilot import Node


@dataclass(slots=True)
class OfferState:
    """Limits, bans and the states of sites, with recent offers."""

    limits: RunningLimits
    cache: OfferCache
    stats: OfferStats[tuple[PilotRow, Node]] = field(default_factory=OfferStats)
    """The classes of recent offers."""
    bans: tuple[BanRow, ...] = ()
    """The bans in force. `cache` has their owners by site."""
    other_folders: OtherFolders = field(default_factory=OtherFolders)
    site_states: Mapping[str, SiteStateRow] = field(default_factory=dict)
    """The sites that an administrator has drained or taken down. `cache` has the closed ones."""
