"""The match: a pilot asks for jobs that fit its node, and is offered those that the draw says are next."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from pilotage.core.classads import ClassAd, evaluate, parse_expression
from pilotage.core.ids import QueueId
from pilotage.core.jobs.states import JobState
from pilotage.core.pilots.ads import offer_ad
from pilotage.core.queues.fit import Identity, Offer, shrink
from pilotage.core.queues.identity import QueueIdentity
from pilotage.core.queues.index import Proposal
from pilotage.services.moves import Moves
from pilotage.services.payloads import payload
from pilotage.services.pool import Pool
from pilotage.store import jobs, pilots
from pilotage.store.jobs import JobRow
from pilotage.store.pilots import PilotRow
from pilotage.store.writer import Transaction
from pilotage.wire.pilot import ExchangeResponse, Node, Take
from pilotage.wire.pilot import Offer as WireOffer

MOST = 256
"""So many jobs are offered in one call, however many are asked for."""


def answer_take(
    pool: Pool, tx: Transaction, pilot: PilotRow, take: Take, moves: Moves, response: ExchangeResponse
) -> None:
    """Fill in the offers of `response`, or why there are none. A take that finds nothing writes nothing."""
    if take.number == pilot.take_number:
        # Its answer was lost: the same again, from the rows.
        response.take_number = take.number
        response.offers = [
            _wire(pool, tx, row, row.epoch) for row in jobs.of_take(tx.connection, pilot.id, take.number)
        ]
        return
    if take.number < pilot.take_number or pilot.leave or pool.draining:
        return
    matched = _Match(pool, tx, pilot, take, moves).run()
    if isinstance(matched, dict):
        response.no_match = matched
        return
    response.take_number = take.number
    response.offers = matched
    pool.touch_pilot(tx, pilot)
    pilot.take_number = take.number
    changes: dict[str, object] = {"take_number": take.number}
    if pilot.only_owner is None:
        # A node that isolates nobody serves one owner only: the first match binds it.
        pilot.only_owner = changes["only_owner"] = matched[0].payload.owner
    pilots.update(tx.connection, pilot.id, **changes)


def offer_of(pool: Pool, pilot: PilotRow, node: Node) -> Offer:
    """What the server knows of the pilot, and what the pilot says of its node."""
    ce = pool.policy.ces.get(pilot.ce)
    site = pool.policy.sites.get(pilot.site)
    identities: tuple[Identity, ...] = ()
    if pilot.pilot_type == "private":
        sharing = "JOB_SHARING" in pool.policy.properties(pilot.owner, pilot.group)
        identities = (Identity(pilot.owner, pilot.group, sharing),)
    job_types = None if site is None or site.job_types is None else frozenset(site.job_types)
    return Offer(
        site=pilot.site,
        ce=pilot.ce,
        cpu_time=node.cpu_left,
        setup=ce.setup if ce else "",
        pilot_type=pilot.pilot_type,
        identities=identities,
        only_owner=pilot.only_owner,
        platforms=pool.policy.compatible(node.platform),
        tags=frozenset(node.tags) | frozenset(ce.tags if ce else ()),
        required_tags=frozenset(ce.required_tags if ce else ()),
        # A pilot cannot offer more than its batch job was given.
        processors=min(node.processors, pilot.processors) if pilot.processors else node.processors,
        memory=min(node.memory, pilot.memory) if pilot.memory and node.memory else node.memory,
        job_types=job_types,
        closed=site is None or site.banned or ce is None,
    )


@dataclass(slots=True)
class Requirements:
    """Whether Requirements are true for one offer; each expression is evaluated once."""

    pool: Pool
    offer: Offer
    node: Node
    now: float
    _ad: ClassAd | None = None
    _known: dict[str, bool] = field(default_factory=dict)

    def __call__(self, text: str) -> bool:
        held = self._known.get(text)
        if held is None:
            expression = self.pool.requirements.get(text)
            if expression is None:
                expression = self.pool.requirements[text] = parse_expression(text)
            if self._ad is None:
                node = self.node
                self._ad = offer_ad(self.offer, node.hostname, node.platform, node.attributes)
            value = evaluate(expression, my=ClassAd(), target=self._ad, now=self.now)
            held = self._known[text] = value is True
        return held


@dataclass(slots=True)
class _Match:
    pool: Pool
    tx: Transaction
    pilot: PilotRow
    take: Take
    moves: Moves

    def run(self) -> list[WireOffer] | dict[str, int]:
        """Successive draws, the offer shrinking after each; or how many queues fell at which condition."""
        pool, pilot, node = self.pool, self.pilot, self.take.node
        made = whole = offer = offer_of(pool, pilot, node)
        offers: list[WireOffer] = []
        count = min(self.take.count, MOST)
        ahead = min(self.take.ahead, count)
        for _ in range(count - ahead):
            given = self._give(offer, offers) if offer.processors > 0 else None
            if given is None:
                break
            offer = shrink(offer, given)
            whole = replace(whole, only_owner=given.owner)
        # Those asked for ahead need not fit beside the others.
        for _ in range(ahead):
            given = self._give(whole, offers)
            if given is None:
                break
            whole = replace(whole, only_owner=given.owner)
        self._note(made, bool(offers))
        return offers or self._no_match(whole)

    def _note(self, offer: Offer, given: bool) -> None:
        """Remember that such an offer was made."""
        pool, pilot = self.pool, self.pilot
        key = pool.index.kind_of(offer)
        pool.kinds.note(key, offer, (pilot, self.take.node), pilot.id, given, self.moves.now)
        self.tx.on_rollback(lambda: pool.kinds.take_back(key, given))

    def _give(self, offer: Offer, offers: list[WireOffer]) -> QueueIdentity | None:
        """Offer one job more, if there is one; the queue that it comes from."""
        found = self._draw(offer)
        if found is None:
            return None
        row, identity = found
        self.moves.offer(row, self.pilot, self.take.number)
        offers.append(_wire(self.pool, self.tx, row, row.epoch + 1))
        return identity

    def _draw(self, offer: Offer) -> tuple[JobRow, QueueIdentity] | None:
        pool, now = self.pool, self.moves.now
        node = self.take.node
        closed = pool.limiter.closed(offer.site, offer.ce, now) if pool.limiter.limits else []
        while True:
            holds = Requirements(pool, offer, node, now)
            proposal = pool.index.propose(offer, holds, closed, pool.rng)
            if proposal is None:
                return None
            self._undo(proposal.queue)
            row = self._disposed(proposal)
            if row is not None:
                return row, pool.queue_identity(self.tx, proposal.queue)

    def _undo(self, queue: QueueId) -> None:
        pool, tx = self.pool, self.tx
        tx.on_rollback(lambda: pool.reload_queue(tx, queue))

    def _disposed(self, proposal: Proposal) -> JobRow | None:
        """Memory proposes, SQL disposes: the job, if it really waits there."""
        row = jobs.by_ids(self.tx.connection, [proposal.job]).get(proposal.job)
        return row if row is not None and row.state is JobState.WAITING else None

    def _no_match(self, offer: Offer) -> dict[str, int]:
        pool, now = self.pool, self.moves.now
        closed = pool.limiter.closed(offer.site, offer.ce, now)
        holds = Requirements(pool, offer, self.take.node, now)
        return {str(key): count for key, count in pool.index.explain(offer, holds, closed).fallen.items()}


def _wire(pool: Pool, tx: Transaction, row: JobRow, epoch: int) -> WireOffer:
    facts = pool.submission(tx, row.submission)
    return WireOffer(row.id, epoch, payload(facts, row))
