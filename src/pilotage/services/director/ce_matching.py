"""The broker's part of an iteration: at which CEs the Requirements of each queue can be true, and who is refused."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Final

from pilotage.core.brokering.answers import Mask
from pilotage.core.brokering.broker import CeTable, Matches, NumberedCe
from pilotage.core.brokering.ce_ad import CeAd
from pilotage.core.brokering.ce_answer import explain_match
from pilotage.core.brokering.match import CeVerdict
from pilotage.core.brokering.numbered_ads import dependencies_of
from pilotage.core.brokering.requester_ad import requester, submitting_identity
from pilotage.core.classads import ClassAd, Literal
from pilotage.core.glue.schema import kinds
from pilotage.core.ids import QueueId
from pilotage.core.policy import Policy
from pilotage.core.policy.model import PilotType
from pilotage.core.provisioning.demand import DemandQueue
from pilotage.core.provisioning.iteration import GENERIC, PRIVATE, CeLoad, Shortfall, required_type
from pilotage.core.queues.identity import QueueIdentity
from pilotage.services.matching.known_offers import as_private
from pilotage.services.matching.requirements import asks_about_requester, stored_expression
from pilotage.services.pool.state import Pool

EXPLAINED: Final = 2
"""Sub-expressions in the reason of one CE."""

QUEUES_AT_ONCE: Final = 32
"""Queues between two pauses, where each answer is known."""
_TRUE: Final = Literal(True)


def submitter_of(policy: Policy, queue: QueueIdentity, pilot_type: PilotType) -> tuple[str, str]:
    """(owner, group) under which pilots for a queue are submitted: its own unless the policy names generic ones."""
    if pilot_type == PRIVATE:
        return queue.owner, queue.group
    settings = policy.director
    return settings.generic_pilot_dn or queue.owner, settings.generic_pilot_group or queue.group


def pilots_ad(policy: Policy, queue: QueueIdentity, pilot_type: PilotType) -> ClassAd:
    """The requester's ad of pilots for a queue: its Requirements, with the submitting identity."""
    subject, organisation = submitting_identity(policy, *submitter_of(policy, queue, pilot_type))
    attributes = {name.lower(): (name, value) for name, value in requester(queue, policy).attributes}
    attributes["certificatesubject"] = ("CertificateSubject", Literal(subject))
    attributes.pop("virtualorganisation", None)
    if organisation:
        attributes["virtualorganisation"] = ("VirtualOrganisation", Literal(organisation))
    if queue.match_text:
        attributes["requirements"] = ("Requirements", stored_expression(queue.match_text))
    return ClassAd(tuple(attributes.values()))


@dataclass(frozen=True, slots=True, eq=False)
class RequesterMatch:
    """The answers for all CEs of an iteration, in their order."""

    requester: ClassAd
    matches: Matches
    fits: Mask
    """The CEs where it may run, closed and full ones included."""

    def refusal(self, place: int) -> str:
        """Why a CE does not fit, with the sub-expressions that said no."""
        answer, facts = self.matches.of(place), self.matches.table.ces[place].facts
        explained = explain_match(self.requester, facts, answer, kinds())
        more = "; ".join(map(str, explained[:EXPLAINED]))
        return f"{answer.reason}: {more}" if more else answer.reason


@dataclass(slots=True)
class QueueMatches:
    """The answers for the queues that any CE may refuse. Every CE fits the others."""

    by_queue: dict[tuple[QueueId, PilotType], RequesterMatch] = field(default_factory=dict)

    def get(self, queue: DemandQueue, pilot_type: PilotType) -> RequesterMatch | None:
        return self.by_queue.get((queue.id, pilot_type))

    def obstacle(self, queue: DemandQueue, pilot_type: PilotType, ces: Sequence[int]) -> Shortfall:
        """Why none of these CEs takes pilots of a queue."""
        match = self.get(queue, pilot_type)
        if match is None or not ces or match.fits[ces].any():
            return Shortfall.NO_CE
        verdicts = {match.matches.verdict(place) for place in ces}
        return Shortfall.REFUSED if CeVerdict.REFUSED in verdicts else Shortfall.IMPOSSIBLE


class RequesterMatching:
    """Matches the queues of an iteration with its CEs, step by step. It keeps to the facts of its begin."""

    def __init__(self, pool: Pool, ces: Sequence[CeLoad], now: float) -> None:
        """In the writer's thread; the policy has all of the CEs."""
        self._policy, self._brokering, self._ces, self._now = pool.policy, pool.ces.brokering, ces, now
        self._ads = [_ad_of(pool, ce.name, now) for ce in ces]
        self._tables: dict[PilotType, CeTable] = {}
        self._known: dict[object, RequesterMatch] = {}
        self.answers = QueueMatches()

    def run(self, queues: Sequence[DemandQueue]) -> Iterator[None]:
        """Find the answers for all queues. Each step is short."""
        restricted = any(ad.ad.index.get("requirements", _TRUE) != _TRUE for ad in self._ads)
        for number, queue in enumerate(queues):
            if not number % QUEUES_AT_ONCE:
                yield
            identity = queue.identity
            if not restricted and not identity.match_text:
                continue
            required = required_type(identity)
            for pilot_type in (GENERIC, PRIVATE) if required is None else (required,):
                yield from self._match(queue, pilot_type, restricted=restricted)

    def _match(self, queue: DemandQueue, pilot_type: PilotType, *, restricted: bool) -> Iterator[None]:
        identity, policy = queue.identity, self._policy
        text = identity.match_text
        of_type = pilot_type if names_pilot_type(text) else GENERIC
        key: object = (text, of_type)
        if restricted or asks_about_requester(text):
            submitter = submitter_of(policy, identity, pilot_type)
            key = (text, of_type, submitter, identity.owner, identity.group, identity.output_se)
        match = self._known.get(key)
        if match is None:
            if of_type not in self._tables:
                yield from self._make_table(of_type)
            broker, ad = self._brokering.broker, pilots_ad(policy, identity, pilot_type)
            matches = yield from broker.match_in_steps(broker.requester(ad), self._tables[of_type])
            match = self._known[key] = RequesterMatch(ad, matches, matches.fitting)
            yield
        self.answers.by_queue[queue.id, pilot_type] = match

    def _make_table(self, pilot_type: PilotType) -> Iterator[None]:
        numbered: list[NumberedCe] = []
        for ce, ad in zip(self._ces, self._ads, strict=True):
            offer = as_private(ce.offer) if pilot_type == PRIVATE else ce.offer
            numbered.append(self._brokering.ce(ad, offer))
            yield
        self._tables[pilot_type] = CeTable(numbered, self._now)


def _ad_of(pool: Pool, name: str, now: float) -> CeAd:
    ad = pool.ce_ad(name, now)
    assert ad is not None, "the policy has the CE"
    return ad


@lru_cache(maxsize=4096)
def names_pilot_type(text: str) -> bool:
    """Whether the answer for a match text may depend on the type of pilots."""
    needs = dependencies_of(stored_expression(text)) if text else None
    return needs is not None and (needs.needs_whole_ad or "pilottype" in needs.names)
