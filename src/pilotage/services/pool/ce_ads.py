"""The ads of the CEs, each made once for an information and a policy."""

from __future__ import annotations

from collections.abc import Container
from dataclasses import dataclass

from pilotage.core.brokering.ce_ad import CeAd, ce_ad
from pilotage.core.glue.information import CeInformation
from pilotage.core.policy import Ce


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
