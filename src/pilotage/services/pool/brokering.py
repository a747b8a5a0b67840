"""The broker of the pool, and the CEs as it knows them."""

from __future__ import annotations

from collections.abc import Container
from dataclasses import dataclass

from pilotage.core.brokering.broker import Broker, NumberedCe
from pilotage.core.brokering.ce_ad import CeAd
from pilotage.core.brokering.new_pilots import facts_of_new_pilots
from pilotage.core.glue.schema import kinds
from pilotage.core.queues.fit import Offer


@dataclass(frozen=True, slots=True)
class _CachedCe:
    ad: CeAd
    offer: Offer
    numbered: NumberedCe


class PoolBroker:
    """Answers and CEs are kept until the facts change. Threads that explain use it beside the writer."""

    def __init__(self) -> None:
        self.broker = Broker(kinds())
        self._ces: dict[tuple[str, str], _CachedCe] = {}

    def ce(self, ad: CeAd, offer: Offer) -> NumberedCe:
        """A CE for pilots that make `offer`: the same object until its ad or the offer changes."""
        key = (ad.name, offer.pilot_type)
        cached = self._ces.get(key)
        if cached is None or cached.ad is not ad or cached.offer != offer:
            numbered = self.broker.numbered(facts_of_new_pilots(ad, offer))
            cached = self._ces[key] = _CachedCe(ad, offer, numbered)
        return cached.numbered

    def retain(self, names: Container[str]) -> None:
        """Forget the CEs that the policy no longer has."""
        # Other threads may add CEs meanwhile.
        for key in tuple(self._ces):
            if key[0] not in names:
                self._ces.pop(key, None)
