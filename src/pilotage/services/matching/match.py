"""The match: a pilot asks for jobs that fit its node, and is offered jobs that the draw gives."""

from __future__ import annotations

from typing import NamedTuple

from pilotage.core.classads import ClassAd
from pilotage.core.ids import JobId, PilotId, QueueId, SubmissionId
from pilotage.core.queues.fit import binds_owner
from pilotage.core.queues.identity import QueueIdentity
from pilotage.core.shares.turns import LOTS
from pilotage.services.jobs.data_orders import OfferedRequestJob, element_job_of
from pilotage.services.jobs.payload import payload
from pilotage.services.jobs.sandbox_objects import sandbox_place
from pilotage.services.jobs.transitions import JobTransitions
from pilotage.services.matching.requirements import Requirements
from pilotage.services.pool.offer_cache import CachedOfferClass, PilotOffers, Remaining
from pilotage.services.pool.state import Pool
from pilotage.services.shares.turns import (
    begin_promised_turn,
    begin_turn,
    end_turn_without_jobs,
    next_turn,
    promised_turn,
    turn_over,
)
from pilotage.store.tables import jobs
from pilotage.store.tables.pilots import PilotRow
from pilotage.store.writer.transaction import Transaction
from pilotage.wire.pilot import MAX_HELD, ExchangeResponse, OfferedJob, Take

EMPTY_TAKES = 25.0
"""Takes a second that all pilots of a server may send in vain. Few pilots may ask often, and many must ask seldom."""
MOST = 256
"""Jobs offered in one call at most."""


class GivenJob(NamedTuple):
    """A job that a take gives to the pilot."""

    id: JobId
    submission: SubmissionId
    parameters: str | None
    epoch: int
    queue: QueueId
    user_priority: int


class Match:
    """The answer to one take. A take that finds nothing writes nothing."""

    __slots__ = (
        *("_answered", "_bound", "_no_match", "_noted", "_offers", "_requirements", "_rest"),
        *("given", "moves", "pilot", "pool", "take", "tx"),
    )

    def __init__(
        self, pool: Pool, tx: Transaction, pilot: PilotRow, take: Take, moves: JobTransitions
    ) -> None:
        self.pool, self.tx, self.pilot, self.take, self.moves = pool, tx, pilot, take, moves
        self.given: list[GivenJob] = []
        self._no_match: dict[str, int] = {}
        self._noted = False
        self._answered = False
        """The answer to this take is on record, even if its jobs have gone since."""
        self._bound = False
        """This take was the pilot's first match, which bound it to one owner."""
        self._offers: PilotOffers
        self._rest: Remaining
        self._requirements: Requirements | None

    def run(self) -> None:
        """Successive draws, the offer shrinking after each; or how many queues fell at which condition."""
        pool, pilot, take = self.pool, self.pilot, self.take
        if take.number == pilot.take_number and not self._answered:
            self._repeat_answer()
            return
        if take.number < pilot.take_number or pilot.leave or pool.server.draining:
            return
        now = self.moves.now
        node = pool.offers.other_folders.completed(pilot.ce, take.node, now)
        offers = self._offers = pool.offers.cache.of(pool.policy, pilot, node)
        if (
            pilot.only_owner is not None
            and turn_over(pool.shares, pilot, now)
            and not next_turn(pool, self.tx, pilot, self._lots, now)
        ):
            return
        before = len(self.given)
        binds = pilot.only_owner is None and self._binds()
        promised = promised_turn(pool, pilot) if binds else None
        owner, left = self._draw_for(promised[1].owner if promised else None, offers.whole(pilot))
        if owner is not None:
            if binds:
                self.moves.touch_pilot(pilot)
                # A node that isolates nobody serves one owner at a time: the first match binds it.
                pilot.only_owner, self._bound = owner, True
                if promised is not None and owner == promised[1].owner:
                    begin_promised_turn(pool.shares, self.tx, pilot, promised[0], now)
                else:
                    begin_turn(pool, self.tx, pilot, now)
            given = self.given[before:] if before else self.given
            self.moves.taken(pilot, take.number, [job.id for job in given])
            self._answered = True
        elif not self.given:
            self._no_match = self._explain(left)
            if pilot.only_owner is not None and not pilot.jobs:
                end_turn_without_jobs(pool, self.tx, pilot, self._lots, now)

    def drop_lost(self, lost: set[tuple[PilotId, JobId]]) -> bool:
        """Drop jobs that another pilot was given; whether any was offered here. Call it once everything is written."""
        pilot = self.pilot
        gone = [job for job in self.given if (pilot.id, job.id) in lost]
        for job in gone:
            self.pool.record_lost_job(self.tx, job.queue, job.user_priority, job.id, pilot)
            _drop_last(pilot.jobs, job.id)
        if gone:
            self.given = [job for job in self.given if job not in gone]
            if self._bound and not pilot.jobs:
                # No offer is left: the pilot serves anybody, as before.
                pilot.only_owner, self._bound = None, False
                self.tx.on_rollback(self.pool.shares.turns.end(pilot.id, None))
                self.moves.taken(pilot, self.take.number, ())
        return bool(gone)

    def fill_in(self, response: ExchangeResponse) -> list[OfferedRequestJob]:
        """Write the offers into the response, or the reasons why there are none. Returns the jobs of requests."""
        of_requests: list[OfferedRequestJob] = []
        response.no_match = self._no_match
        if not self.given:
            response.poll = len(self.pool.pilots.last_seen) / EMPTY_TAKES
        if self._answered:
            # Also when nothing is left of it: under this number there will never be anything else.
            response.take_number = self.take.number
        if self.given:
            pool, tx = self.pool, self.tx
            offers, sandbox = response.offers, sandbox_place(pool)
            for job in self.given:
                facts = pool.jobs.submissions.get(tx, job.submission)
                offer = OfferedJob(job.id, job.epoch, payload(facts, job.id, job.parameters), sandbox)
                offers.append(offer)
                if facts.row.request is not None:
                    of_requests.append(
                        OfferedRequestJob(offer, element_job_of(job.parameters), self.pilot.site)
                    )
        return of_requests

    def _repeat_answer(self) -> None:
        """The answer was lost: give the same again, from the rows."""
        self._answered = True
        self.moves.write()
        self.given = [
            GivenJob(row.id, row.submission, row.parameters, row.epoch, row.queue, 0)
            for row in jobs.of_take(self.tx.connection, self.pilot.id, self.take.number)
        ]

    def _draw_for(self, promised: str | None, whole: Remaining) -> tuple[str | None, Remaining]:
        """Draw first for the owner to whom the pilot is promised, then as `_draw_all`."""
        if promised is not None:
            owner, left = self._draw_all(whole.bound_to(promised))
            if owner is not None:
                return owner, left
        return self._draw_all(whole)

    def _draw_all(self, whole: Remaining) -> tuple[str | None, Remaining]:
        """Draw up to the number of jobs asked for: the owner of the first, and the last remaining offer."""
        most = min(self.take.count, MOST)
        count = min(most - len(self.given), MAX_HELD - len(self.pilot.jobs))
        # Jobs asked for ahead need not fit beside the others.
        beside = count - self.take.ahead
        owner, rest = None, whole
        for job in self.given:
            rest = rest.without(self.pool.queues.identity(self.tx, job.queue))
        place = 0
        while place < count:
            asked = rest if place < beside else whole
            given = self._give(asked) if asked.processors > 0 else None
            place += 1
            if given is None:
                if place > beside:
                    break
                place = max(place, beside)
                continue
            if owner is None:
                owner = given.owner
                if place < count and self._binds():
                    whole, rest = whole.bound_to(owner), rest.bound_to(owner)
            if place < beside:
                rest = rest.without(given)
        return owner, whole

    def _binds(self) -> bool:
        return binds_owner(self.pilot.pilot_type, isolated=self._offers.base.isolated)

    def _lots(self) -> dict[str, int]:
        """The lots of each owner, drawn among all queues that the pilot would fit were it bound to nobody."""
        pool, pilot = self.pool, self.pilot
        limiter = pool.offers.limits.limiter
        closed = tuple(limiter.closed_limits(pilot.site, pilot.ce, self.moves.now)) if limiter.limits else ()
        self._rest, self._requirements = self._offers.unbound(pilot), None
        cached = self._offers.offer_class(pool.queues.index, self._rest, closed)
        return pool.queues.index.count_wins(cached.offer_class, self._holds, LOTS)

    def _give(self, rest: Remaining) -> QueueIdentity | None:
        """Offer one job more, if there is one; the queue that it comes from."""
        pool, pilot, moves = self.pool, self.pilot, self.moves
        limiter = pool.offers.limits.limiter
        closed = tuple(limiter.closed_limits(pilot.site, pilot.ce, moves.now)) if limiter.limits else ()
        self._rest, self._requirements = rest, None
        cached = self._offers.offer_class(pool.queues.index, rest, closed)
        proposal = pool.queues.index.propose(cached.offer_class, self._holds, pool.rng)
        if not self._noted:
            self._record_offer(cached, rest, proposal is not None)
        if proposal is None:
            return None
        head, entry, user_priority = proposal
        epoch = moves.offer(head, entry, pilot, self.take.number)
        job, submission, _, _, parameters = head  # as `WaitingJob`
        self.given.append(GivenJob(job, submission, parameters, epoch, entry.id, user_priority))
        return entry.identity

    def _holds(self, queue: QueueIdentity) -> bool:
        """Whether the match text of a queue is true for the present offer."""
        if self._requirements is None:
            offer = self._offers.offer(self._rest)
            self._requirements = Requirements(offer, self._node_ad, self.pool.policy, self.moves.now)
        return self._requirements(queue)

    def _node_ad(self) -> ClassAd:
        return self._offers.node_ad(self.pool.ce_ad(self.pilot.ce, self.moves.now))

    def _record_offer(self, cached: CachedOfferClass, rest: Remaining, given: bool) -> None:
        """Remember that such an offer was made."""
        self._noted = True
        record, now = cached.records.get(rest.processors), self.moves.now
        if record is None or not record.is_fresh(now):
            origin, offer = (self.pilot, self.take.node), self._offers.offer(rest)
            started = self.pilot.started or 0.0
            key = self.pool.queues.index.history_key(offer)
            self.tx.on_rollback(self.pool.offers.stats.restorer(key))
            record = self.pool.offers.stats.refresh(key, offer, origin, now, started=started)
            cached.records[rest.processors] = record
        record.record_take(self.pilot.id, self.take.node.hostname, given, now)
        self.moves.noted.append((record, given))

    def _explain(self, rest: Remaining) -> dict[str, int]:
        self._rest, self._requirements = rest, None
        offer = self._offers.offer(rest)
        closed = self.pool.offers.limits.limiter.closed_limits(offer.site, offer.ce, self.moves.now)
        explanation = self.pool.queues.index.explain(offer, self._holds, closed)
        return {str(key): count for key, count in explanation.fallen.items()}


def _drop_last(listed: list[int], job: JobId) -> None:
    """Remove the last entry of a job. An earlier one stays: another server may have given the job to this pilot."""
    for place in reversed(range(len(listed))):
        if listed[place] == job:
            del listed[place]
            return
