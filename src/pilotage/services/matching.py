"""The match: a pilot asks for jobs that fit its node, and is offered those that the draw says are next."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from pilotage.core.classads import ClassAd, evaluate, parse_expression
from pilotage.core.ids import JobId, QueueId
from pilotage.core.pilots.ads import offer_ad
from pilotage.core.queues.fit import Identity, Offer, shrink
from pilotage.core.queues.identity import QueueIdentity
from pilotage.services.moves import Moves
from pilotage.services.payloads import payload
from pilotage.services.pool import Pool
from pilotage.store import jobs
from pilotage.store.jobs import Waiting
from pilotage.store.pilots import PilotRow
from pilotage.store.writer import Transaction
from pilotage.wire.pilot import ExchangeResponse, Node, Take
from pilotage.wire.pilot import Offer as WireOffer

MOST = 256
"""So many jobs are offered in one call, however many are asked for."""


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
class Match:
    """The answer to one take. A take that finds nothing writes nothing."""

    pool: Pool
    tx: Transaction
    pilot: PilotRow
    take: Take
    moves: Moves
    _given: list[tuple[Waiting, int, QueueId]] = field(default_factory=list)
    """Jobs, their epochs, and the queues that they come from."""
    _no_match: dict[str, int] = field(default_factory=dict)
    _counted: bool = False

    def run(self) -> None:
        """Successive draws, the offer shrinking after each; or how many queues fell at which condition."""
        pool, pilot, take = self.pool, self.pilot, self.take
        if take.number == pilot.take_number and not self._given:
            self._same_again()
            return
        if take.number < pilot.take_number or pilot.leave or pool.draining:
            return
        made = offer_of(pool, pilot, take.node)
        first, left = self._draw_all(made)
        if first is not None:
            pool.touch_pilot(self.tx, pilot)
            if pilot.only_owner is None:
                # A node that isolates nobody serves one owner only: the first match binds it.
                pilot.only_owner = first.owner
            self.moves.taken(pilot, take.number)
        elif not self._given:
            self._no_match = self._explain(left)
        if not self._counted:
            self._note(made, first is not None)

    def lose(self, lost: set[JobId]) -> bool:
        """Take back jobs that somebody else has; whether any was ours."""
        gone = [given for given in self._given if given[0].id in lost]
        for _, _, queue in gone:
            self.pool.reload_queue(self.tx, queue)
        self._given = [given for given in self._given if given[0].id not in lost]
        return bool(gone)

    def fill_in(self, response: ExchangeResponse) -> None:
        """Tell the pilot what it is offered, or why there is nothing."""
        response.no_match = self._no_match
        if self._given:
            response.take_number = self.take.number
            pool, tx = self.pool, self.tx
            response.offers = [
                WireOffer(job.id, epoch, payload(pool.submission(tx, job.submission), job.id, job.parameters))
                for job, epoch, _ in self._given
            ]

    def _same_again(self) -> None:
        """Its answer was lost: the same again, from the rows."""
        self.moves.write()
        self._given = [
            (Waiting(row.id, row.submission, row.epoch, row.last_event, row.parameters), row.epoch, row.queue)
            for row in jobs.of_take(self.tx.connection, self.pilot.id, self.take.number)
        ]

    def _draw_all(self, offer: Offer) -> tuple[QueueIdentity | None, Offer]:
        """Give as many jobs as are asked for and are there: the queue of the first one, and what is left."""
        whole = offer
        count = min(self.take.count, MOST) - len(self._given)
        ahead = min(self.take.ahead, count)
        first = None
        for place in range(count):
            # Those asked for ahead need not fit beside the others.
            asked = whole if place >= count - ahead else offer
            given = self._give(asked) if asked.processors > 0 else None
            if given is None and asked is whole:
                break
            if given is not None:
                first = first or given
                offer = shrink(offer, given)
                if whole.only_owner is None:
                    whole = replace(whole, only_owner=given.owner)
        return first, whole

    def _give(self, offer: Offer) -> QueueIdentity | None:
        """Offer one job more, if there is one; the queue that it comes from."""
        pool, now = self.pool, self.moves.now
        closed = pool.limiter.closed(offer.site, offer.ce, now) if pool.limiter.limits else ()
        holds = Requirements(pool, offer, self.take.node, now)
        proposal = pool.index.propose(offer, holds, closed, pool.rng)
        if proposal is None:
            return None
        pool.touch_queue(self.tx, proposal.entry.id)
        job = Waiting(*proposal.head)
        self.moves.offer(job, proposal.entry, self.pilot, self.take.number)
        self._given.append((job, job.epoch + 1, proposal.entry.id))
        return proposal.entry.identity

    def _note(self, offer: Offer, given: bool) -> None:
        """Remember that such an offer was made."""
        self._counted = True
        pool, pilot = self.pool, self.pilot
        key = pool.index.kind_of(offer)
        pool.kinds.note(key, offer, (pilot, self.take.node), pilot.id, given, self.moves.now)
        self.tx.on_rollback(lambda: pool.kinds.take_back(key, given))

    def _explain(self, offer: Offer) -> dict[str, int]:
        pool, now = self.pool, self.moves.now
        closed = pool.limiter.closed(offer.site, offer.ce, now)
        holds = Requirements(pool, offer, self.take.node, now)
        return {str(key): count for key, count in pool.index.explain(offer, holds, closed).fallen.items()}
