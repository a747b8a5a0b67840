"""The information of each CE with the policy applied, made once for an answer and a policy."""

from __future__ import annotations

from dataclasses import dataclass

from pilotage.core.brokering.published import (
    PublishedHosts,
    PublishedInformation,
    is_usable,
    publish,
    publish_hosts,
)
from pilotage.core.glue.information import CeInformation, HostClass
from pilotage.core.policy import Ce, Policy

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
