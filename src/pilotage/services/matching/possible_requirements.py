"""Whether Requirements may be true for pilots of a batch system that have not started."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field

from pilotage.core.brokering.broker import CeTable
from pilotage.core.brokering.ce_ad import CeAd
from pilotage.core.brokering.match import CeFacts, CeVerdict
from pilotage.core.brokering.requester_ad import requester
from pilotage.core.classads import ClassAd
from pilotage.core.policy import Policy
from pilotage.core.queues.fit import Offer
from pilotage.core.queues.identity import QueueIdentity
from pilotage.services.matching.requirements import asks_about_requester, stored_expression
from pilotage.services.pool.brokering import PoolBroker


@dataclass(slots=True)
class PossibleRequirements:
    """The predicate by which the director submits: true where hosts of the CE may satisfy a match text.

    A node is not known before its pilot has started. So conditions on the node alone refuse nothing.
    """

    brokering: PoolBroker
    policy: Policy
    ad: CeAd
    """The ad of the CE."""
    offer: Offer
    now: float
    _table: CeTable | None = None
    _known: dict[Hashable, bool] = field(default_factory=dict)

    def __call__(self, queue: QueueIdentity) -> bool:
        text = queue.match_text
        asks = asks_about_requester(text)
        key = (text, queue.owner, queue.group, queue.output_se) if asks else text
        may_hold = self._known.get(key)
        if may_hold is None:
            broker = self.brokering.broker
            verdict = broker.match(broker.requester(self.requester(queue)), self._ces()).verdict(0)
            may_hold = self._known[key] = verdict not in (CeVerdict.IMPOSSIBLE, CeVerdict.NO_HOSTS)
        return may_hold

    def requester(self, queue: QueueIdentity) -> ClassAd:
        own = requester(queue, self.policy).attributes
        return ClassAd((*own, ("Requirements", stored_expression(queue.match_text))))

    @property
    def facts(self) -> CeFacts:
        """The CE as the match knows it for new pilots."""
        return self._ces().ces[0].facts

    def _ces(self) -> CeTable:
        """A table of this CE alone."""
        if self._table is None:
            self._table = CeTable([self.brokering.ce(self.ad, self.offer)], self.now)
        return self._table
