"""The information of each CE with the policy applied, made once for an answer and a policy."""

from __future__ import annotations

from dataclasses import dataclass

from pilotage.core.brokering.information import CeInformation
from pilotage.core.brokering.published import PublishedInformation, is_usable, publish
from pilotage.core.policy import Policy


@dataclass(frozen=True, slots=True)
class _Cached:
    policy: Policy
    live: CeInformation | None
    current: bool
    published: PublishedInformation


class PublishedInformations:
    """The last information of each CE. Threads that explain read it beside the writer."""

    def __init__(self) -> None:
        self._by_name: dict[str, _Cached] = {}

    def of(
        self, policy: Policy, name: str, live: CeInformation | None, home_owner: str, now: float
    ) -> PublishedInformation:
        """The information of a CE: the same object until its facts, their validity or the policy change."""
        cached, current = self._by_name.get(name), live is not None and is_usable(live, now)
        if (
            cached is None
            or cached.live is not live
            or cached.policy is not policy
            or cached.current is not current
        ):
            published = publish(policy, name, live, current=current, home_owner=home_owner)
            cached = self._by_name[name] = _Cached(policy, live, current, published)
        return cached.published
