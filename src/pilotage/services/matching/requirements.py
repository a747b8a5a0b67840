"""Whether the Requirements of queues are true for one offer of a pilot."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from functools import lru_cache

from pilotage.core.brokering.pilot_ads import node_ad, offer_ad
from pilotage.core.brokering.requester_ad import ATTRIBUTES, match_expression, requester
from pilotage.core.classads import ERROR, ClassAd, Expression, Literal, evaluate, references
from pilotage.core.errors import InvalidInput
from pilotage.core.glue.schema import EXPRESSIONS
from pilotage.core.policy import Policy
from pilotage.core.queues.fit import Offer
from pilotage.core.queues.identity import QueueIdentity
from pilotage.services.pool.state import Pool
from pilotage.wire.pilot import Node

PARSED_TEXTS = 4096
"""Parsed Requirements kept in memory. Threads that explain and the writer share them."""

REQUIREMENTS_STEPS = 20_000
"""Bound of one evaluation, since everybody waits for it. The largest expression without long texts takes fewer."""

_NOBODY = ClassAd()
_OF_REQUESTER = frozenset(name.lower() for name in ATTRIBUTES)
_OF_BOTH = frozenset(name.lower() for name in EXPRESSIONS)


@dataclass(slots=True)
class Requirements:
    """Whether the match text of a queue is true for one offer. Each text is evaluated once.

    A text that refers to the requester is evaluated once for each requester.
    """

    offer: Offer
    node: Callable[[], ClassAd]
    """Makes the part of the offer's ad that stays (`node_ad`). Called when the first text is evaluated."""
    policy: Policy
    now: float
    _ad: ClassAd | None = None
    _known: dict[Hashable, bool] = field(default_factory=dict)

    def __call__(self, queue: QueueIdentity) -> bool:
        text = queue.match_text
        held = self._known.get(text)
        if held is not None:
            return held
        key = (text, queue.owner, queue.group, queue.output_se)
        held = self._known.get(key)
        if held is not None:
            return held
        expression = stored_expression(text)
        if asks_about_requester(text):
            held = self._known[key] = self._is_true(expression, requester(queue, self.policy))
        else:
            held = self._known[text] = self._is_true(expression, _NOBODY)
        return held

    @property
    def ad(self) -> ClassAd:
        """The ad of the offer."""
        if self._ad is None:
            self._ad = offer_ad(self.offer, self.node())
        return self._ad

    def _is_true(self, expression: Expression, my: ClassAd) -> bool:
        value = evaluate(expression, my=my, target=self.ad, now=self.now, steps=REQUIREMENTS_STEPS)
        return value is True


def requirements_for(pool: Pool, offer: Offer, node: Node, now: float) -> Requirements:
    """The predicate for an offer of a pilot that found `node`."""

    def make_node_ad() -> ClassAd:
        return node_ad(offer, pool.ce_ad(offer.ce, now), node.hostname, node.platform, node.attributes)

    return Requirements(offer, make_node_ad, pool.policy, now)


@lru_cache(maxsize=PARSED_TEXTS)
def stored_expression(text: str) -> Expression:
    """Requirements as they were stored. An expression that only an earlier version accepted is true nowhere."""
    try:
        return match_expression(text)
    except InvalidInput:
        return Literal(ERROR)


@lru_cache(maxsize=PARSED_TEXTS)
def asks_about_requester(text: str) -> bool:
    """Whether the value of a match text depends on the requester's ad."""
    return any(
        reference.scope == "my"
        or reference.name in _OF_BOTH
        or (reference.scope == "" and reference.name in _OF_REQUESTER)
        for reference in references(stored_expression(text))
    )
