"""The match: a pilot asks for jobs that fit its node, and is offered those that the draw says are next."""

from __future__ import annotations

from dataclasses import dataclass, field

from pilotage.core.classads import ClassAd, evaluate, parse_expression
from pilotage.core.ids import JobId, PilotId, QueueId
from pilotage.core.pilots.ads import offer_ad
from pilotage.core.queues.candidates import Kind
from pilotage.core.queues.entry import Head
from pilotage.core.queues.fit import Offer, RequirementsHold
from pilotage.core.queues.identity import QueueIdentity
from pilotage.services.asking import Asking, Rest
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


@dataclass(slots=True, eq=False)
class Match:
    """The answer to one take. A take that finds nothing writes nothing."""

    pool: Pool
    tx: Transaction
    pilot: PilotRow
    take: Take
    moves: Moves
    _given: list[tuple[Head, int, QueueId, int]] = field(default_factory=list)
    """Jobs (values of `Waiting`), their epochs, the queues that they come from, and their UserPriority."""
    _no_match: dict[str, int] = field(default_factory=dict)
    _asking: Asking | None = None
    _noted: bool = False
    _answered: bool = False
    """This take has its answer on record, whatever has become of the jobs in it."""

    def run(self) -> None:
        """Successive draws, the offer shrinking after each; or how many queues fell at which condition."""
        pool, pilot, take = self.pool, self.pilot, self.take
        if take.number == pilot.take_number and not self._answered:
            self._same_again()
            return
        if take.number < pilot.take_number or pilot.leave or pool.draining:
            return
        asking = self._asking = pool.asking.of(pool.policy, pilot, take.node)
        kept = len(self._given)
        first, left = self._draw_all(asking, asking.whole(pilot))
        if first is not None:
            pool.touch_pilot(self.tx, pilot)
            if pilot.only_owner is None:
                # A node that isolates nobody serves one owner only: the first match binds it.
                pilot.only_owner = first.owner
            self.moves.taken(pilot, take.number, [head[0] for head, *_ in self._given[kept:]])
            self._answered = True
        elif not self._given:
            self._no_match = self._explain(asking, left)

    def lose(self, lost: set[tuple[PilotId, JobId]]) -> bool:
        """Take back jobs that somebody else has, once all is written; whether any was ours."""
        pilot = self.pilot
        gone = [given for given in self._given if (pilot.id, given[0][0]) in lost]
        for head, _, queue, user_priority in gone:
            self.pool.lost(self.tx, queue, user_priority, head[0], pilot)
        if gone:
            pilot.jobs = [job for job in pilot.jobs if (pilot.id, job) not in lost]
            self._given = [given for given in self._given if given not in gone]
        return bool(gone)

    def fill_in(self, response: ExchangeResponse) -> None:
        """Tell the pilot what it is offered, or why there is nothing."""
        response.no_match = self._no_match
        if self._answered:
            # Also when nothing is left of it: under this number there will never be anything else.
            response.take_number = self.take.number
        if self._given:
            pool, tx = self.pool, self.tx
            response.offers = [
                WireOffer(job, epoch, payload(pool.submission(tx, submission), job, parameters))
                for (job, submission, _, _, parameters), epoch, *_ in self._given
            ]

    def _same_again(self) -> None:
        """Its answer was lost: the same again, from the rows."""
        self._answered = True
        self.moves.write()
        self._given = [
            (
                Waiting(row.id, row.submission, row.epoch, row.last_event, row.parameters),
                row.epoch,
                row.queue,
                0,
            )
            for row in jobs.of_take(self.tx.connection, self.pilot.id, self.take.number)
        ]

    def _draw_all(self, asking: Asking, whole: Rest) -> tuple[QueueIdentity | None, Rest]:
        """Give as many jobs as are asked for and are there: the queue of the first one, and what asked last."""
        count = min(self.take.count, MOST) - len(self._given)
        ahead = min(self.take.ahead, count)
        first, rest = None, whole
        for _, _, queue, _ in self._given:
            rest = rest.without(self.pool.queue_identity(self.tx, queue))
        for place in range(count):
            # Those asked for ahead need not fit beside the others.
            alone = place >= count - ahead
            asked = whole if alone else rest
            given = self._give(asking, asked) if asked.processors > 0 else None
            if given is None:
                if alone or not ahead:
                    break
                continue
            rest = rest.without(given)
            if first is None:
                first = given
                whole = whole.bound_to(given.owner)
        return first, whole

    def _give(self, asking: Asking, rest: Rest) -> QueueIdentity | None:
        """Offer one job more, if there is one; the queue that it comes from."""
        pool, now, pilot = self.pool, self.moves.now, self.pilot
        closed = tuple(pool.limiter.closed(pilot.site, pilot.ce, now)) if pool.limiter.limits else ()
        kind = asking.kind(pool.index, rest, closed)
        proposal = pool.index.propose_of(kind, self._holds(asking, rest), pool.rng)
        if not self._noted:
            self._note(asking, rest, kind, proposal is not None)
        if proposal is None:
            return None
        entry, head = proposal.entry, proposal.head
        pool.touch_queue(self.tx, entry.id)
        epoch = self.moves.offer(head, entry, pilot, self.take.number)
        self._given.append((head, epoch, entry.id, proposal.user_priority))
        return entry.identity

    def _holds(self, asking: Asking, rest: Rest) -> RequirementsHold:
        """Whether Requirements are true for this offer, which is made up only if somebody asks."""
        made: Requirements | None = None

        def holds(text: str) -> bool:
            nonlocal made
            if made is None:
                made = Requirements(self.pool, asking.offer(rest), self.take.node, self.moves.now)
            return made(text)

        return holds

    def _note(self, asking: Asking, rest: Rest, kind: Kind, given: bool) -> None:
        """Remember that such an offer was made."""
        self._noted = True
        pool, pilot, key = self.pool, self.pilot, kind.offer
        origin = (pilot, self.take.node)
        pool.kinds.note(key, lambda: asking.offer(rest), origin, pilot.id, given, self.moves.now)
        self.tx.touch("kinds", self, (key, given), pool.took_back)

    def _explain(self, asking: Asking, rest: Rest) -> dict[str, int]:
        pool, now = self.pool, self.moves.now
        offer = asking.offer(rest)
        closed = pool.limiter.closed(offer.site, offer.ce, now)
        found = pool.index.explain(offer, self._holds(asking, rest), closed)
        return {str(key): count for key, count in found.fallen.items()}
