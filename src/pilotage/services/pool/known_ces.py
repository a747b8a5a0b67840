"""The CEs in memory: the answers of their batch systems, and the ads and matches that are made from them."""

from __future__ import annotations

from collections.abc import Container, Hashable
from dataclasses import dataclass, field

from pilotage.core.brokering.ce_ad import CeAd, ce_ad
from pilotage.core.brokering.published import (
    PublishedHosts,
    PublishedInformation,
    is_usable,
    publish,
    publish_hosts,
)
from pilotage.core.forwarding.forward import Forwarding
from pilotage.core.glue.information import CeInformation, HostClass
from pilotage.core.policy import Ce, Policy
from pilotage.services.pool.brokering import PoolBroker
from pilotage.wire.pilot import Node

_NEVER_ANSWERED = CeInformation()


@dataclass(frozen=True, slots=True)
class _CachedInformation:
    policy: Policy
    live: CeInformation
    current: bool
    published: PublishedInformation


@dataclass(frozen=True, slots=True)
class _CachedHosts:
    ce: Ce
    live: tuple[HostClass, ...]
    published: PublishedHosts


class PublishedInformations:
    """The last information of each CE. Threads that explain read it beside the writer."""

    def __init__(self) -> None:
        self._by_name: dict[str, _CachedInformation] = {}
        self._hosts: dict[str, _CachedHosts] = {}
        """Host classes change seldom, and there may be many of them."""

    def of(
        self, policy: Policy, name: str, live: CeInformation | None, home_owner: str, now: float
    ) -> PublishedInformation:
        """The information of a CE: the same object until its facts, their validity or the policy change.

        `live`: the last facts of its batch system; None: it has never answered.
        """
        live = live or _NEVER_ANSWERED
        cached, current = self._by_name.get(name), is_usable(live, now)
        if (
            cached is None
            or cached.live is not live
            or cached.policy is not policy
            or cached.current is not current
        ):
            hosts = self._hosts_of(name, policy.ces[name], live.host_classes)
            published = publish(policy, name, live, hosts, current=current, home_owner=home_owner)
            cached = self._by_name[name] = _CachedInformation(policy, live, current, published)
        return cached.published

    def _hosts_of(self, name: str, ce: Ce, live: tuple[HostClass, ...]) -> PublishedHosts:
        cached = self._hosts.get(name)
        if cached is None or cached.ce is not ce or cached.live is not live:
            cached = self._hosts[name] = _CachedHosts(ce, live, publish_hosts(ce, live))
        return cached.published


@dataclass(frozen=True, slots=True)
class _CachedAd:
    ce: Ce
    information: CeInformation
    is_current: bool
    ad: CeAd


class CeAds:
    """The last ad of each CE. Threads that explain read it beside the writer."""

    def __init__(self) -> None:
        self._by_name: dict[str, _CachedAd] = {}

    def of(self, name: str, ce: Ce, information: CeInformation, now: float) -> CeAd:
        """The ad of a CE: the same object until its facts change or expire."""
        cached, is_current = self._by_name.get(name), information.is_current(now)
        if (
            cached is None
            or cached.information is not information
            or cached.ce is not ce
            or cached.is_current is not is_current
        ):
            # Most answers change no host, and a CE may have thousands.
            same = cached is not None and cached.ad.host_classes == information.host_classes
            names = cached.ad.host_names if cached is not None and same else None
            ad = ce_ad(name, ce, information, now, names)
            cached = self._by_name[name] = _CachedAd(ce, information, is_current, ad)
        return cached.ad

    def retain(self, names: Container[str]) -> None:
        """Forget the CEs that the policy no longer has."""
        for name in list(self._by_name):
            if name not in names:
                self._by_name.pop(name, None)


MOST_KEPT = 2000
"""Forwardings of one CE. Then all are made again."""


class Forwardings:
    """Forwardings that are valid for one ad of each CE, by requirements.

    The writer and threads that explain or prepare use them.
    """

    def __init__(self) -> None:
        self._by_ce: dict[str, tuple[CeAd, dict[Hashable, Forwarding]]] = {}

    def of(self, ad: CeAd) -> dict[Hashable, Forwarding]:
        """The forwardings for this ad, to be read and extended. Another ad of the CE drops the earlier ones."""
        known = self._by_ce.get(ad.name)
        if known is None or known[0] is not ad or len(known[1]) >= MOST_KEPT:
            known = self._by_ce[ad.name] = ad, {}
        return known[1]

    def retain(self, names: Container[str]) -> None:
        """Forget the CEs that the policy no longer has."""
        # Other threads may add CEs meanwhile.
        for name in tuple(self._by_ce):
            if name not in names:
                self._by_ce.pop(name, None)


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
