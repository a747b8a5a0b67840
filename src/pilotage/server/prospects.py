"""Known offers, for warnings about submissions that no offer satisfies."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from pilotage.core.policy import Policy
from pilotage.core.queues.offer_history import KnownOffer
from pilotage.services.matching.known_offers import known_offers
from pilotage.services.pool.state import Pool
from pilotage.store.writer.writer import Writer

FRESH = 5.0
"""Seconds for which the offers are cached. Many small submissions then need one request to the writer."""


class Prospects:
    """The known offers as of a few seconds ago. Used in the event loop only."""

    def __init__(self, pool: Pool, writer: Writer, clock: Callable[[], float]) -> None:
        self._pool, self._writer, self._clock = pool, writer, clock
        self._known: Sequence[KnownOffer] = ()
        self._policy: Policy | None = None
        self._until = 0.0

    async def known(self) -> Sequence[KnownOffer]:
        pool, now = self._pool, self._clock()
        if self._policy is not pool.policy or not now < self._until <= now + FRESH:
            known = await self._writer.acall(lambda tx: (pool.policy, known_offers(pool, now)))
            self._policy, self._known = known
            self._until = now + FRESH if self._known else 0.0
        return self._known
