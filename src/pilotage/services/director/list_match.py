"""List-match: each CE's answer for one requester, with the explanation and the flags, as the director has them.

All functions read the pool without the writer: run them in a reader's thread.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

import msgspec

from pilotage.core.brokering.ad_text import suspicions_of
from pilotage.core.brokering.ce_ad import CeAd
from pilotage.core.brokering.ce_answer import MOST_WORK, answer_for, as_plain, in_glue_spelling, work_of
from pilotage.core.brokering.match import match, rank_of
from pilotage.core.brokering.misspelt import misspelt_names
from pilotage.core.brokering.requester_ad import requester_ad
from pilotage.core.brokering.seen_attributes import shorten, value_text
from pilotage.core.classads import ClassAd, unparse
from pilotage.core.glue.schema import DEFAULT_RANK, kinds
from pilotage.core.policy import Ce, Policy
from pilotage.core.policy.model import PilotType
from pilotage.core.provisioning.iteration import GENERIC, PRIVATE, required_type
from pilotage.core.queues.fit import STATIC, Offer
from pilotage.core.queues.identity import QueueIdentity
from pilotage.services.director.ce_loads import NO_NODE, rank_numbers
from pilotage.services.director.ce_matching import pilots_ad
from pilotage.services.director.forwarding import forwarding_of, hook_call
from pilotage.services.matching.known_offers import as_private, possible_offer
from pilotage.services.matching.requirements import stored_expression
from pilotage.services.pool.state import Pool
from pilotage.services.why.wording import CONDITIONS
from pilotage.wire.ces import CeSummary
from pilotage.wire.matchmaking import CeAdReport, CeMatch, HostClassAd, MatchReport

UNFIT, UNASKED = "unfit", "unasked"
TOO_LARGE = "the Requirements are too large to ask all CEs at once: ask about this CE alone (--ce)"
ACTIVE = "active"
MOST_CLASSES = 100
"""Classes of hosts in the report of an ad."""
MOST_UNMAPPED = 1000
"""Characters of the unmapped part of a residual."""
MOST_VALUE = 4000
"""Characters of one variable of a hook."""
MOST_NAMES = 20
"""Names of hosts of one class there."""
_ORDER = ("yes", "full", "closed", "refused", "no hosts", "impossible", UNFIT, UNASKED)


def list_match(
    pool: Pool, identity: QueueIdentity, rows: Sequence[CeSummary], now: float, *, ce: str = "", limit: int
) -> MatchReport:
    """Match a requester with every CE of `rows`, or with one of them."""
    requester = requester_ad(identity, pool.policy)
    answers: list[CeMatch] = []
    requirements, work = stored_expression(identity.match_text or "true"), 0
    for row in rows:
        ad = pool.ce_ad(row.name, now) if not ce or row.name == ce else None
        if ad is None or row.name not in pool.policy.ces:
            continue  # Not asked for, or the policy lost the CE after `row` was read.
        more = work_of(requirements, len(ad.host_classes))
        if work and work + more > MOST_WORK:
            answers.append(CeMatch(row.name, UNASKED, row.site, TOO_LARGE))
            continue
        work += more
        answers.append(_answer(pool, identity, ad, row, now))
    answers.sort(key=_fitting_first)
    return MatchReport(
        identity.owner,
        identity.group,
        identity.match_text,
        unparse(requester),
        dict(Counter(answer.verdict for answer in answers)),
        answers[:limit],
        list(misspelt_names(requester.get("Requirements") or requester)),
    )


def _fitting_first(answer: CeMatch) -> tuple[int, float, str]:
    place = _ORDER.index(answer.verdict)
    return place, -answer.rank if answer.rank is not None else float("inf"), answer.ce


def _answer(pool: Pool, identity: QueueIdentity, ad: CeAd, row: CeSummary, now: float) -> CeMatch:
    policy = pool.policy
    pilot_type = _type_of_pilots(policy.ces[row.name], identity)
    offer = possible_offer(pool, row.name, pool.ces.nodes.get(row.name) or NO_NODE)
    facts = pool.ces.brokering.ce(ad, as_private(offer) if pilot_type == PRIVATE else offer).facts
    requester = pilots_ad(policy, identity, pilot_type)
    rank = _rank(policy, row, facts.ad)
    ce_match = match(requester, facts, now=now, rank=rank, kinds=kinds())
    answer = msgspec.convert(as_plain(answer_for(requester, facts, ce_match, kinds())), CeMatch)
    answer.site = row.site
    answer.state = "" if row.state == ACTIVE else f"{row.state}: {row.reason}" if row.reason else row.state
    if ad.updated:
        answer.updated, answer.is_expired = ad.updated, not ad.is_current(now)
    if unmet := _unmet_conditions(pool, identity, row.name):
        answer.verdict, answer.reason, answer.refusals = UNFIT, "; ".join(unmet), []
    elif ce_match.verdict.fits:
        _add_flags(answer, pool, identity, now)
    return answer


def _type_of_pilots(ce: Ce, identity: QueueIdentity) -> PilotType:
    """The type of the pilots that the answer is about. Generic ones come first where a queue accepts both."""
    return required_type(identity) or (GENERIC if GENERIC in ce.allowed_pilot_types else PRIVATE)


def _add_flags(answer: CeMatch, pool: Pool, identity: QueueIdentity, now: float) -> None:
    """The native arguments of a submission, and the part that they leave to the match on the node."""
    forwarding = forwarding_of(pool, answer.ce, identity, now)
    answer.flags = list(forwarding.flags)
    if forwarding.unmapped is not None:
        answer.unmapped = shorten(unparse(in_glue_spelling(forwarding.unmapped)), MOST_UNMAPPED)
    answer.forwarding = "; ".join(text for text in (forwarding.reason, *forwarding.notes) if text)
    ce = pool.policy.ces.get(answer.ce)
    call = None if ce is None else hook_call(pool.policy, ce, answer.ce, identity, forwarding)
    if call is not None and forwarding.is_possible:
        answer.hook = call.program
        answer.hook_environment = {name: shorten(value, MOST_VALUE) for name, value in call.environment}


def _rank(policy: Policy, row: CeSummary, ad: ClassAd) -> float:
    settings = policy.director.pool(policy.ces[row.name].submit_pool)
    known = ad.extended(rank_numbers(row.waiting, row.running, row.max_waiting, row.max_running))
    return rank_of(stored_expression(settings.rank or DEFAULT_RANK), known)


def _unmet_conditions(pool: Pool, identity: QueueIdentity, name: str) -> list[str]:
    """Sentences for the conditions other than Requirements that a new pilot of the CE would not meet."""
    offer = possible_offer(pool, name, pool.ces.nodes.get(name) or NO_NODE)
    types = pool.policy.ces[name].allowed_pilot_types
    offers = [offer if kind == "generic" else as_private(offer) for kind in types] or [offer]
    unmet = min((_unmet(identity, offered) for offered in offers), key=len)
    return [CONDITIONS.get(condition, condition) for condition in unmet]


def _unmet(identity: QueueIdentity, offer: Offer) -> list[str]:
    return [str(condition) for condition, rule in STATIC.items() if not rule.met(identity, offer)]


# --- ads


def requester_text(identity: QueueIdentity, policy: Policy) -> str:
    return unparse(in_glue_spelling(requester_ad(identity, policy)))


def ce_ad_report(pool: Pool, name: str, now: float) -> CeAdReport:
    """The ad of a CE of the policy."""
    ad = pool.ce_ad(name, now)
    assert ad is not None
    return CeAdReport(
        name,
        unparse(ad.document()),
        unparse(ad.fixed),
        ad.updated or None,
        ad.updated + ad.expiry if ad.updated else None,
        bool(ad.updated) and not ad.is_current(now),
        hosts=[*_host_classes(ad)],
        suspicions=[f"{suspicion.path}: {suspicion.message}" for suspicion in suspicions_of(ad.ad)],
    )


def _host_classes(ad: CeAd) -> Iterator[HostClassAd]:
    for known in ad.host_classes[:MOST_CLASSES]:
        attributes = {name: value_text(value) for name, value in known.attributes.items()}
        yield HostClassAd(known.count, attributes, list(known.hosts[:MOST_NAMES]))
