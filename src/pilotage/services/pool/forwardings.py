"""The flags that were made last for each CE. The writer and threads that explain or prepare use them."""

from __future__ import annotations

from collections.abc import Container, Hashable

from pilotage.core.brokering.ce_ad import CeAd
from pilotage.core.forwarding.forward import Forwarding

MOST_KEPT = 2000
"""Forwardings of one CE. Then all are made again."""


class Forwardings:
    """Forwardings that are valid for one ad of each CE, by requirements."""

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
