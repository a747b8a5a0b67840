"""The state that decides beside the queues which jobs a pilot may be offered."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from pilotage.core.queues.offer_history import OfferStats
from pilotage.services.pool.limits import RunningLimits
from pilotage.services.pool.offer_cache import OfferCache
from pilotage.store.tables.bans import BanRow
from pilotage.store.tables.pilots import PilotRow
from pilotage.store.tables.site_states import SiteStateRow
from pilotage.wire.pilot import MAX_OTHER_FOLDERS, Node

REMEMBERED = 3600.0
"""Seconds for which a host is not given further jobs for such a folder."""
MAX_HOSTS = 10_000
"""Hosts of CEs remembered; the one that was reported first is forgotten first."""


@dataclass(slots=True)
class OtherFolders:
    """Folders that pilots found to be other ones on their node than where the jobs in place were submitted.

    A pilot reports them as long as it lives. The next pilot on the host would need another job to see it. So the
    server remembers the reports for some time; an administrator may mount the folder meanwhile.
    """

    _by_host: OrderedDict[tuple[str, str], dict[str, float]] = field(default_factory=OrderedDict)
    """Folder → the instant at which it is forgotten."""

    def completed(self, ce: str, node: Node, now: float) -> Node:
        """The node with the folders that it or an earlier pilot of its host reported."""
        if not self._by_host and not node.other_folders:
            return node
        host = (ce, node.hostname)
        known = {folder: end for folder, end in self._by_host.get(host, {}).items() if end > now}
        known |= {folder: now + REMEMBERED for folder in node.other_folders if folder not in known}
        if not known:
            self._by_host.pop(host, None)
            return node
        self._by_host[host] = dict(list(known.items())[-MAX_OTHER_FOLDERS:])
        if len(self._by_host) > MAX_HOSTS:
            self._by_host.popitem(last=False)
        return replace(node, other_folders=sorted(self._by_host[host]))

    def on_all(self, ce: str, hosts: Iterable[str], now: float) -> frozenset[str]:
        """The folders that are remembered for each of these hosts."""
        if not self._by_host:
            return frozenset()
        known = [
            {folder for folder, end in self._by_host.get((ce, host), {}).items() if end > now}
            for host in hosts
        ]
        return frozenset(set.intersection(*known)) if known else frozenset()

    def forget(self) -> None:
        """Forget all reports: a new policy may name other folders, after they were mounted."""
        self._by_host.clear()


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
