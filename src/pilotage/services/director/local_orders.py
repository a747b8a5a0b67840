"""The orders of a local CE: up to its cores while jobs wait that its pilots could run, none otherwise.

They are planned in each cycle, beside the iterations over all CEs: a local pilot is as wide as the job that it is for,
and its cores are known one by one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from pilotage.core.ids import PilotId, QueueId
from pilotage.core.policy import Ce
from pilotage.core.provisioning.plan import (
    Capacity,
    LivePilot,
    Plan,
    PlannedPilot,
    ProvisioningFacts,
    Succession,
    WaitingQueue,
    decided_above,
    plan,
)
from pilotage.core.shares.turns import Turn, next_owner
from pilotage.outside.batch.adapter import Shape
from pilotage.services.director.budgets import plan_within
from pilotage.services.director.ce_director import CeDirector, ChosenOrders, CycleFacts
from pilotage.services.director.submissions import SubmissionOrder
from pilotage.services.matching.known_offers import capacity, possible_offer
from pilotage.services.matching.requirements import requirements_for
from pilotage.services.pilots.enrolment import PROBE
from pilotage.services.pilots.orders import tell_to_leave
from pilotage.services.pool.state import Pool
from pilotage.store.tables import jobs, pilots
from pilotage.store.tables.ces import LiveTotals
from pilotage.store.tables.pilots import PilotRow
from pilotage.store.writer.transaction import Transaction
from pilotage.wire.pilot import Node


@dataclass(slots=True)
class LocalOrders:
    """Plans the pilots of one local CE. Its memory may be lost."""

    machine: Node
    """The node that its pilots find."""
    free_disk: int = 0
    """MB free for temporary files on this machine, in the last cycle; 0: unknown."""
    starving_since: Mapping[QueueId, float] = field(default_factory=dict)
    leaving: dict[PilotId, str] = field(default_factory=dict)
    """Pilots that gave way and had not ended in the last cycle, and whose turn comes after them."""

    def node(self, ce: Ce) -> Node:
        sizes = [size for size in (self.free_disk, ce.pilot_disk) if size]
        return replace(self.machine, disk=min(sizes, default=0))

    def probe(self, ce: Ce) -> SubmissionOrder:
        return SubmissionOrder(1, self._shape(ce, 1), PROBE, ce.submit_pool, lease=ce.lease)

    def choose(self, director: CeDirector, pool: Pool, tx: Transaction, facts: CycleFacts) -> ChosenOrders:
        """Plan this cycle, and tell the pilots to leave that make room for a wide one."""
        name, ce, now = director.ce, facts.ce, facts.now
        live = pilots.live(tx.connection, name)
        decided, turns = Plan(starving_since=self.starving_since), dict[PilotId, Turn]()
        if facts.is_open:
            turns = self._ended_turns(name, pool, tx, ce, live)
            whole, known_pilots = Capacity(*capacity(ce, self.machine)), _live_pilots(tx, live)
            above = decided_above(whole, known_pilots)
            known = ProvisioningFacts(
                whole,
                known_pilots,
                tuple(self._queues(director, pool, ce, now, whole, above)),
                tuple(Succession(pilot, turn.owner) for pilot, turn in turns.items()),
                self.starving_since,
            )
            decided = plan(known, now, pool.rng)
        tx.set(self, "starving_since", decided.starving_since)
        rows = {pilot.id: pilot for pilot in live}
        for pilot in decided.drains:
            tell_to_leave(pool, tx, rows[pilot], "drain")
        planned = plan_within(facts.budget, ce, decided.orders)
        followed = {pilot.follows for pilot in planned}
        for pilot, turn in turns.items():
            if pilot not in followed:
                tx.on_rollback(pool.shares.turns.give_back(turn, None))
        neighbours = tuple(pilot.batch_id for pilot in live if pilot.batch_id)
        orders = [self._order(pool, ce, pilot, turns, neighbours) for pilot in planned]
        return ChosenOrders(orders, _totals_of(live), capacity(ce, self.machine)[0])

    def _order(
        self,
        pool: Pool,
        ce: Ce,
        planned: PlannedPilot,
        turns: Mapping[PilotId, Turn],
        neighbours: tuple[str, ...],
    ) -> SubmissionOrder:
        turn = None if planned.follows is None else turns[planned.follows]
        owner = turn.owner if turn else None if ce.serves_everybody else pool.server.home_owner
        return SubmissionOrder(
            1,
            self._shape(ce, planned.processors),
            "generic",
            ce.submit_pool,
            queue=planned.queue,
            only_owner=owner,
            properties={"owner": owner} if owner else {},
            turn=turn,
            neighbours=neighbours,
            lease=ce.lease,
        )

    def _shape(self, ce: Ce, processors: int) -> Shape:
        """Memory comes in proportion to processors."""
        cores, memory = capacity(ce, self.machine)
        return Shape(processors, memory * processors // max(1, cores))

    def _ended_turns(
        self, name: str, pool: Pool, tx: Transaction, ce: Ce, live: Sequence[PilotRow]
    ) -> dict[PilotId, Turn]:
        """The turns that come after pilots that gave way and have ended, taken from the pool's book."""
        alive = {pilot.id for pilot in live}
        owners = {pilot.id: owner for pilot in live if (owner := next_owner(pilot.leave)) is not None}
        # A pilot that spoke to another server is known by its row, seen in an earlier cycle.
        known = self.leaving | {
            pilot: turn.owner for pilot, turn in pool.shares.turns.following.items() if turn.ce == name
        }
        tx.set(self, "leaving", owners)
        turns = {}
        for pilot, owner in known.items():
            if pilot not in alive:
                promised, undo = pool.shares.turns.take_over(pilot)
                tx.on_rollback(undo)
                turns[pilot] = promised or Turn(name, owner, ce.quantum)
        return turns

    def _queues(
        self, director: CeDirector, pool: Pool, ce: Ce, now: float, whole: Capacity, above: int
    ) -> Iterator[WaitingQueue]:
        """The queues wider than `above` that a pilot with all of the CE's capacity could serve."""
        if above >= whole.processors:
            return
        node = self.node(ce)
        offer = possible_offer(pool, director.ce, node)
        closed = pool.offers.limits.limiter.exhausted_limits(offer.site, offer.ce, now)
        holds = requirements_for(pool, offer, node, now)
        entries = pool.queues.index.candidates(offer, holds, closed)
        submit_pool, pools = ce.submit_pool, pool.policy.default_submit_pools() if entries else ()
        for entry in entries:
            identity = entry.identity
            if whole.width(identity) <= above:
                continue
            if submit_pool not in (identity.submit_pools or pools):
                continue
            yield WaitingQueue(
                entry.id,
                identity.owner,
                entry.waiting,
                identity.processors,
                identity.memory,
                director.back_off.pauses_at(entry.id, now),
            )


def _live_pilots(tx: Transaction, live: Sequence[PilotRow]) -> tuple[LivePilot, ...]:
    busy = jobs.having_jobs(tx.connection, [pilot for pilot in live if not pilot.leave])
    return tuple(
        LivePilot(
            pilot.id,
            pilot.processors,
            pilot.only_owner,
            pilot.id in busy,
            bool(pilot.leave),
            next_owner(pilot.leave) is not None,
        )
        for pilot in live
    )


def _totals_of(live: Sequence[PilotRow]) -> LiveTotals:
    waiting = sum(pilot.started is None for pilot in live)
    return LiveTotals(len(live), waiting, sum(pilot.processors for pilot in live))
