"""How many pilots the local CE needs: up to its cores while jobs wait that they could run, none otherwise.

Demand is asked of the predicate that matches. Every waiting job is counted once, a pilot without work covers one.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field, replace
from math import inf

from pilotage.core.ids import PilotId, QueueId
from pilotage.core.pilots.backoff import BackOff
from pilotage.core.pilots.handover import Action, Seen, SubmissionPhase, next_step, sight_of
from pilotage.core.pilots.states import PilotState
from pilotage.core.policy import Ce
from pilotage.core.provisioning.facts import (
    Capacity,
    LivePilot,
    ProvisioningFacts,
    Succession,
    WaitingQueue,
)
from pilotage.core.provisioning.plan import Plan, PlannedPilot, plan
from pilotage.core.shares.turns import Turn, next_owner
from pilotage.core.sites import SiteState
from pilotage.outside.batch.submission import STAMP_PREFIX
from pilotage.services.director.budgets import exhausted, plan_within, status_of
from pilotage.services.director.look_back import note_cycle, observe_pilots, totals_of
from pilotage.services.director.probes import is_wanted, mark_submitted
from pilotage.services.matching.known_offers import capacity, possible_offer
from pilotage.services.matching.requirements import requirements_for
from pilotage.services.pilots.enrolment import PROBE, secret_hash
from pilotage.services.pilots.lifecycle import PilotEnd, end_absent_pilot, end_silent_pilot
from pilotage.services.pilots.orders import tell_to_leave
from pilotage.services.pool.state import Pool
from pilotage.store.tables import ces, jobs, pilots
from pilotage.store.tables.ces import CeProgress, CeSwitch
from pilotage.store.tables.pilots import NewPilot, PilotRow, SubmittedPilot
from pilotage.store.writer.transaction import Transaction
from pilotage.wire.pilot import Node

LONGEST_WAIT = 300.0
"""Seconds without a new pilot at most, after several that never called home."""


@dataclass(frozen=True, slots=True)
class PilotIntent:
    """A pilot whose intent is stored and that the batch system is asked for next."""

    pilot: PilotId
    stamp: str
    secret: str
    index: int
    """Within its submission, which has no other pilot."""
    processors: int
    memory: int
    owner: str | None = None
    """The owner that it is bound to."""


@dataclass(slots=True)
class LocalDirector:
    """The director of one local CE. Its memory is no state of the pool and may be lost."""

    ce: str
    node: Node
    """The node that a pilot there finds."""
    starving_since: Mapping[QueueId, float] = field(default_factory=dict)
    ordered: set[PilotId] = field(default_factory=set)
    """Pilots that this director has ordered and that have not been started yet."""
    aborted_in_a_row: int = 0
    not_before: float = 0.0
    back_off: BackOff = field(default_factory=BackOff)
    leaving: dict[PilotId, str] = field(default_factory=dict)
    """Pilots that gave way and had not ended in the last cycle, and whose turn comes after them."""
    _ce: Ce | None = None
    """As the policy had it in the last cycle."""

    def order(self, pool: Pool, tx: Transaction, now: float, place: str = "") -> list[PilotIntent]:
        """Plan this cycle and carry the plan out: the pilots to start now, whose intents are stored.

        `place`: the part of their batch ids that is known already.
        """
        tx.put(pool.ces.local_nodes, self.ce, self.node)
        ce = pool.policy.ces.get(self.ce)
        if ce is None:
            return []
        live = pilots.live(tx.connection, self.ce)
        decided = Plan(starving_since=self.starving_since)
        turns: dict[PilotId, Turn] = {}
        row = ces.by_name(tx.connection, self.ce)
        self._observe_started(pool, tx, ce, now, row.switched)
        if row.switch is CeSwitch.ON and not self._holds_back(pool, ce, now):
            turns = self._ended_turns(pool, tx, ce, live)
            decided = plan(self._facts(pool, tx, ce, live, turns, now), now, pool.rng)
        budget = status_of(tx.connection, self.ce, ce, now)
        decided = replace(decided, orders=plan_within(budget, ce, decided.orders))
        cores, spent = capacity(ce, self.node)[0], exhausted(budget)
        note = note_cycle(
            now, len(decided.orders), totals_of(live), cores, self.back_off, self.not_before, spent
        )
        tx.put(pool.provisioning.directors, self.ce, note)
        self._store(tx, row.progress, now)
        ordered = self._carry_out(pool, tx, ce, live, decided, turns, now, place)
        if not pool.server.draining and is_wanted(tx, self.ce, now):
            probe = self._insert_pilot(pool, tx, ce, 1, None, PROBE, now, place)
            mark_submitted(tx, self.ce, probe.pilot)
            ordered.append(probe)
        return ordered

    def _store(self, tx: Transaction, stored: CeProgress, now: float) -> None:
        """Write the reasons for pauses into the CE's row, so that every server can explain them."""
        trouble = "pilots end without calling home" if self.not_before else ""
        queues, until = self.back_off.paused_queues(now)
        progress = replace(
            stored,
            trouble=trouble,
            failures=self.aborted_in_a_row,
            not_before=self.not_before,
            queues_paused=queues,
            queues_until=until,
        )
        if progress != stored:
            ces.save_progress(tx.connection, self.ce, progress)

    def _holds_back(self, pool: Pool, ce: Ce, now: float) -> bool:
        """Whether no pilot is started at all now."""
        down = pool.site_state(ce.site) is SiteState.DOWN
        return pool.server.draining or down or self._waits(now) or self.back_off.pauses_for_all(now)

    def _facts(
        self,
        pool: Pool,
        tx: Transaction,
        ce: Ce,
        live: Sequence[PilotRow],
        turns: Mapping[PilotId, Turn],
        now: float,
    ) -> ProvisioningFacts:
        busy = jobs.having_jobs(tx.connection, [pilot for pilot in live if not pilot.leave])
        return ProvisioningFacts(
            Capacity(*capacity(ce, self.node)),
            tuple(_live_pilot(pilot, pilot.id in busy) for pilot in live),
            tuple(self._queues(pool, ce, now)),
            tuple(Succession(pilot, turn.owner) for pilot, turn in turns.items()),
            self.starving_since,
        )

    def _carry_out(
        self,
        pool: Pool,
        tx: Transaction,
        ce: Ce,
        live: Sequence[PilotRow],
        decided: Plan,
        turns: Mapping[PilotId, Turn],
        now: float,
        place: str,
    ) -> list[PilotIntent]:
        tx.set(self, "starving_since", decided.starving_since)
        rows = {pilot.id: pilot for pilot in live}
        for pilot in decided.drains:
            tell_to_leave(pool, tx, rows[pilot], "drain")
        followed = {planned.follows for planned in decided.orders}
        for pilot, turn in turns.items():
            if pilot not in followed:
                tx.on_rollback(pool.shares.turns.give_back(turn, None))
        ordered = []
        for planned in decided.orders:
            turn_of = None if planned.follows is None else turns[planned.follows]
            ordered.append(self._store_intent(pool, tx, ce, planned, turn_of, now, place))
        return ordered

    def _store_intent(
        self,
        pool: Pool,
        tx: Transaction,
        ce: Ce,
        planned: PlannedPilot,
        turn: Turn | None,
        now: float,
        place: str,
    ) -> PilotIntent:
        home_owner = None if ce.serves_everybody else pool.server.home_owner
        owner = turn.owner if turn else home_owner
        intent = self._insert_pilot(
            pool, tx, ce, planned.processors, owner, "generic", now, place, planned.queue
        )
        self.back_off.started_for[intent.pilot] = planned.queue
        if turn is not None:
            tx.on_rollback(pool.shares.turns.start(intent.pilot, turn))
        return intent

    def _insert_pilot(
        self,
        pool: Pool,
        tx: Transaction,
        ce: Ce,
        processors: int,
        owner: str | None,
        pilot_type: str,
        now: float,
        place: str,
        queue: QueueId | None = None,
    ) -> PilotIntent:
        stamp, secret = STAMP_PREFIX + secrets.token_hex(8), secrets.token_urlsafe(32)
        cores, all_memory = capacity(ce, self.node)
        memory = all_memory * processors // max(1, cores)
        pilot = pilots.insert(
            tx.connection,
            NewPilot(
                stamp=stamp,
                secret_hash=secret_hash(secret),
                idx=0,
                site=ce.site,
                ce=self.ce,
                only_owner=owner,
                pilot_type=pilot_type,
                processors=processors,
                memory=memory,
                submitted=now,
                id=pool.ids.next_pilot(),
                batch_id=place,
                lease_until=now + ce.lease,
                queue=queue,
                wall=ce.wall,
            ),
        )
        tx.add(self.ordered, pilot)
        return PilotIntent(pilot, stamp, secret, 0, processors, memory, owner)

    def _observe_started(
        self, pool: Pool, tx: Transaction, ce: Ce, now: float, switched: float | None
    ) -> None:
        """Note which of the pilots that were started here had a job."""
        back_off = deepcopy(self.back_off)
        tx.set(self, "back_off", back_off)
        if ce != self._ce:
            back_off.forget()
            tx.set(self, "_ce", ce)
        if switched != back_off.switched:
            # `ce enable` ends the pause after pilots that never called home, too.
            tx.set(self, "aborted_in_a_row", 0)
            tx.set(self, "not_before", 0.0)
        back_off.follow_switch(switched)
        observe_pilots(pool, tx, back_off, now)

    def _ended_turns(
        self, pool: Pool, tx: Transaction, ce: Ce, live: Sequence[PilotRow]
    ) -> dict[PilotId, Turn]:
        """The turns that come after pilots that gave way and have ended, taken from the pool's book."""
        alive = {pilot.id for pilot in live}
        owners = {pilot.id: owner for pilot in live if (owner := next_owner(pilot.leave)) is not None}
        # A pilot that spoke to another server is known by its row, seen in an earlier cycle.
        known = self.leaving | {
            pilot: turn.owner for pilot, turn in pool.shares.turns.following.items() if turn.ce == self.ce
        }
        tx.set(self, "leaving", owners)
        turns = {}
        for pilot, owner in known.items():
            if pilot not in alive:
                promised, undo = pool.shares.turns.take_over(pilot)
                tx.on_rollback(undo)
                turns[pilot] = promised or Turn(self.ce, owner, ce.quantum)
        return turns

    def _queues(self, pool: Pool, ce: Ce, now: float) -> Iterator[WaitingQueue]:
        """The queues that a pilot with all of the CE's capacity could serve."""
        offer = possible_offer(pool, self.ce, self.node)
        closed = pool.offers.limits.limiter.exhausted_limits(offer.site, offer.ce, now)
        holds = requirements_for(pool, offer, self.node, now)
        pools = pool.policy.default_submit_pools()
        for entry in pool.queues.index.candidates(offer, holds, closed):
            identity = entry.identity
            if ce.submit_pool not in (identity.submit_pools or pools):
                continue
            yield WaitingQueue(
                entry.id,
                identity.owner,
                entry.waiting,
                identity.processors,
                identity.memory,
                self.back_off.pauses_at(entry.id, now),
            )

    # --- answers of the batch system

    def action(self, pilot: SubmittedPilot, seen: Seen, *, holds: bool) -> Action:
        """The action of the hand-over for a pilot that was looked up by its stamp. `holds` as of `next_step`."""
        # One complete listing of the processes of this machine is proof.
        sight = sight_of(seen, None, now=0.0, settle=0.0)
        return next_step(phase_of(pilot), sight, holds=holds).action

    def record_start(self, pool: Pool, tx: Transaction, pilot: PilotId, batch_id: str) -> bool:
        """Store the batch id of a pilot, which may have called home already. False: the pilot has ended."""
        row = pilots.by_id(tx.connection, pilot)
        tx.discard(self.ordered, pilot)
        if row is None or row.ended is not None:
            return False
        pool.pilots.rows.forget(row)
        changes: dict[str, object] = {"batch_id": batch_id}
        if row.state is PilotState.SUBMITTED:
            changes |= {"state": PilotState.WAITING, "lease_until": None}
        pilots.update(tx.connection, pilot, **changes)
        return True

    def abort(self, pool: Pool, tx: Transaction, pilot: PilotId, reason: str, now: float) -> None:
        """End a pilot that was never started; its processors are free again."""
        row = pilots.by_id(tx.connection, pilot)
        if row is None or row.ended is not None or row.started is not None:
            return
        end_silent_pilot(pool, tx, row, PilotEnd.NEVER_STARTED, reason, now)
        # An intent that an earlier server has left says nothing about this CE.
        if pilot in self.ordered:
            tx.discard(self.ordered, pilot)
            self._count_aborted(tx, True, now)

    def record_end(
        self,
        pool: Pool,
        tx: Transaction,
        pilot: PilotRow | SubmittedPilot,
        last_words: str,
        now: float,
        listed: float = inf,
    ) -> None:
        """End a pilot that a complete listing of the instant `listed` does not have."""
        current = pilots.by_id(tx.connection, pilot.id)
        if current is None or current.ended is not None or pool.pilots.last_seen.get(pilot.id, -inf) > listed:
            return
        reason = f"ended without a word: {last_words}" if last_words else "ended without a word"
        new = end_absent_pilot(pool, tx, current, reason, now)
        self._count_aborted(tx, new is PilotState.ABORTED, now)

    def _count_aborted(self, tx: Transaction, never_called: bool, now: float) -> None:
        """Pilots that never call home must not be started in a tight loop."""
        tx.set(self, "aborted_in_a_row", self.aborted_in_a_row + 1 if never_called else 0)
        if self.aborted_in_a_row >= 3:
            tx.set(self, "not_before", now + min(LONGEST_WAIT, 2.0**self.aborted_in_a_row))

    def _waits(self, now: float) -> bool:
        """Whether pilots never called home lately. A clock that was set back ends the wait."""
        return self.not_before - LONGEST_WAIT <= now < self.not_before


def phase_of(pilot: SubmittedPilot) -> SubmissionPhase:
    """How far the hand-over of a local pilot has come. A batch id that is only a place is no start."""
    known = pilot.started is not None or pilot.batch_id.partition("@")[0]
    return SubmissionPhase.RELEASED if known else SubmissionPhase.INTENT


def _live_pilot(pilot: PilotRow, has_job: bool) -> LivePilot:
    successor = next_owner(pilot.leave) is not None
    return LivePilot(pilot.id, pilot.processors, pilot.only_owner, has_job, bool(pilot.leave), successor)
