"""The sub-expressions of a queue's Requirements that said no, for each CE."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

import msgspec

from pilotage.core.brokering.ce_ad import CeAd
from pilotage.core.brokering.ce_answer import (
    MOST_CLASSES,
    MOST_WORK,
    ExplainedRefusal,
    explain_match,
    facts_of,
    in_glue_spelling,
    refusal_as_plain,
    work_of,
)
from pilotage.core.brokering.explanation import explain_refusal
from pilotage.core.brokering.match import match
from pilotage.core.brokering.requester_ad import requester_ad
from pilotage.core.classads import ClassAd
from pilotage.core.glue.schema import kinds
from pilotage.core.policy import Policy
from pilotage.core.queues.identity import QueueIdentity
from pilotage.core.queues.offer_history import KnownOffer
from pilotage.services.matching.possible_requirements import PossibleRequirements
from pilotage.services.matching.requirements import Requirements, stored_expression
from pilotage.wire.matchmaking import SubExpression
from pilotage.wire.why import CeRefusals

MOST_CES = 20
"""CEs that are explained; the others are explained by `pilotage match-ce`."""
MOST_OFFERS = 4
"""Known offers that are explained at one CE."""
MOST_REFUSALS = 4
"""Sub-expressions of one CE."""


def requirement_refusals(
    identity: QueueIdentity,
    policy: Policy,
    known: Sequence[KnownOffer],
    ce_ad: Callable[[str], CeAd | None],
    now: float,
) -> list[CeRefusals]:
    """For each CE where they are not true: by its offers, or by its ad where no offer is known there."""
    if not identity.match_text:
        return []
    requester = requester_ad(identity, policy)
    offers: dict[str, list[KnownOffer]] = {}
    for known_offer in known:
        offers.setdefault(known_offer.offer.ce, []).append(known_offer)
    answers: list[CeRefusals] = []
    work = work_of(stored_expression(identity.match_text), MOST_CLASSES)
    for asked, (name, ce) in enumerate(sorted(policy.ces.items())):
        if len(answers) == MOST_CES or work * asked > MOST_WORK:
            break
        if name in offers:
            explained = _by_offers(identity, requester, offers[name])
        else:
            explained = _by_ad(requester, ce_ad(name), now)
        refusals = [
            msgspec.convert(refusal_as_plain(row), SubExpression) for row in explained[:MOST_REFUSALS]
        ]
        if refusals:
            answers.append(CeRefusals(name, ce.site, refusals))
    return answers


def _by_offers(
    identity: QueueIdentity, requester: ClassAd, offers: Iterable[KnownOffer]
) -> list[ExplainedRefusal]:
    """None if the Requirements are true for one of the offers."""
    predicates = [known.holds for known in offers]
    if any(holds(identity) for holds in predicates):
        return []
    expression = in_glue_spelling(stored_expression(identity.match_text))
    refusals: dict[ExplainedRefusal, None] = {}
    for holds in predicates[:MOST_OFFERS]:
        if isinstance(holds, Requirements):
            for refusal in explain_refusal(expression, requester, holds.ad):
                refusals.setdefault(ExplainedRefusal(refusal))
        elif isinstance(holds, PossibleRequirements):
            answer = match(requester, holds.facts, now=holds.now, kinds=kinds())
            refusals |= dict.fromkeys(explain_match(requester, holds.facts, answer, kinds()))
    return list(refusals)


def _by_ad(requester: ClassAd, ad: CeAd | None, now: float) -> list[ExplainedRefusal]:
    if ad is None:
        return []
    facts = facts_of(ad)
    answer = match(requester, facts, now=now, kinds=kinds())
    return list(explain_match(requester, facts, answer, kinds()))


def misspelt(answers: Iterable[CeRefusals]) -> str:
    """A hint about a name that no ad has and that resembles one of an ad; empty: there is none."""
    return next(_misspelt(answers), "")


def _misspelt(answers: Iterable[CeRefusals]) -> Iterator[str]:
    for answer in answers:
        for refusal in answer.refusals:
            for seen in refusal.seen:
                if seen.nearest:
                    yield f"the Requirements name {seen.name}, which no ad has: is {seen.nearest} meant?"
