"""How many pilots the local CE needs: up to its cores while jobs wait that they could run, none otherwise.

Demand is asked of the predicate that matches. Every waiting job is counted once, a pilot without work covers one.
"""

from __future__ import annotations

import secrets
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field, replace
from math import inf
from typing import NamedTuple

from pilotage.core.ids import PilotId, QueueId
from pilotage.core.pilots.backoff import BackOff, LastSeen
from pilotage.core.pilots.handover import Action, Seen, SubmissionPhase, next_step, sight_of
from pilotage.core.pilots.states import PilotState
from pilotage.core.policy import Ce
from pilotage.core.queues.indexed_queue import IndexedQueue
from pilotage.core.shares.turns import Turn, next_owner
from pilotage.services.matching.known_offers import capacity, possible_offer
from pilotage.services.matching.match import Requirements
from pilotage.services.pilots.enrolment import secret_hash
from pilotage.services.pilots.lifecycle import PilotEnd, end_silent_pilot
from pilotage.services.pool.records import DirectorNote
from pilotage.services.pool.state import Pool
from pilotage.store.tables import jobs, pilots
from pilotage.store.tables.pilots import PilotRow, SubmittedPilot
from pilotage.store.writer.transaction import Transaction
from pilotage.wire.pilot import Node

PATIENCE = 30.0
"""Seconds for which a wide queue may wait before narrow pilots are told to leave for it."""
LONGEST_WAIT = 300.0
"""Seconds without a new pilot at most, after several that never called home."""


@dataclass(frozen=True, slots=True)
class Ordered:
    """A pilot whose intent is stored and that is to be started."""

    pilot: PilotId
    stamp: str
    secret: str
    index: int
    processors: int
    memory: int


class Wanted(NamedTuple):
    """A pilot to start."""

    processors: int
    queue: QueueId
    """The one that it is for; it may serve others."""
    turn: Turn | None = None
    """It comes in the place of one that gave way."""


@dataclass(slots=True)
class LocalDirector:
    """The director of one local CE. What it remembers is no state of the pool: it may be forgotten."""

    ce: str
    node: Node
    """What a pilot there finds."""
    starved: dict[QueueId, float] = field(default_factory=dict)
    ordered: set[PilotId] = field(default_factory=set)
    """Pilots that this director has ordered and that have not been started yet."""
    aborted_in_a_row: int = 0
    not_before: float = 0.0
    back_off: BackOff = field(default_factory=BackOff)
    leaving: dict[PilotId, str] = field(default_factory=dict)
    """Pilots that gave way and had not ended in the last cycle, and whose turn comes after them."""
    _ce: Ce | None = None
    """As the policy had it in the last cycle."""

    def order(self, pool: Pool, tx: Transaction, now: float, place: str = "") -> list[Ordered]:
        """Store the intent of the pilots that are wanted now. `place`: what is known of their batch ids."""
        tx.put(pool.local_nodes, self.ce, self.node)
        ce = pool.policy.ces.get(self.ce)
        if ce is None:
            return []
        live = pilots.live(tx.connection, self.ce)
        self._look_back(pool, tx, ce, live, now)
        cores, all_memory = capacity(ce, self.node)
        pauses = self.back_off.pauses_for_all(now)
        idle = pool.draining or pool.policy.sites[ce.site].banned or self._waits(now) or pauses
        wanted = [] if idle else self._wanted(pool, tx, ce, live, now)
        used = sum(pilot.processors for pilot in live)
        not_before = max(self.not_before, self.back_off.all_until if pauses else 0.0)
        note = DirectorNote(
            now,
            len(wanted),
            len(live),
            cores,
            used,
            not_before if now < not_before else 0.0,
            {queue: replace(pause) for queue, pause in self.back_off.pauses.items()},
        )
        tx.put(pool.directors, self.ce, note)
        only_owner = pool.home_owner if ce.owners == "home" else None
        ordered = []
        for index, (processors, queue, turn) in enumerate(wanted):
            stamp, secret = secrets.token_hex(8), secrets.token_urlsafe(32)
            memory = all_memory * processors // max(1, cores)
            pilot = pilots.insert(
                tx.connection,
                stamp=stamp,
                secret_hash=secret_hash(secret),
                idx=index,
                site=ce.site,
                ce=self.ce,
                only_owner=turn.owner if turn else only_owner,
                pilot_type="generic",
                processors=processors,
                memory=memory,
                now=now,
                id_=pool.pilot_id(),
                batch_id=place,
                lease_until=now + ce.lease,
            )
            tx.add(self.ordered, pilot)
            self.back_off.started_for[pilot] = queue
            if turn is not None:
                tx.on_rollback(pool.turns.start(pilot, turn))
            ordered.append(Ordered(pilot, stamp, secret, index, processors, memory))
        return ordered

    def _look_back(self, pool: Pool, tx: Transaction, ce: Ce, live: Sequence[PilotRow], now: float) -> None:
        """Take in which of the pilots that were started here had a job."""
        back_off = deepcopy(self.back_off)
        tx.set(self, "back_off", back_off)
        if ce != self._ce:
            back_off.forget()
            tx.set(self, "_ce", ce)
        alive = {pilot.id: pilot for pilot in live}
        rows = [alive.get(id_) or pilots.by_id(tx.connection, id_) for id_ in back_off.started_for]
        entries = (pool.index.entries.get(id_) for id_ in {*back_off.pauses, *back_off.started_for.values()})
        waiting = {entry.id: entry.waiting for entry in entries if entry is not None}
        seen = [_last_seen(row, pool.draining) for row in rows if row is not None]
        back_off.observe(seen, waiting, now)
        for id_ in [id_ for id_ in back_off.started_for if id_ not in alive]:
            back_off.ended(id_)

    def _wanted(
        self, pool: Pool, tx: Transaction, ce: Ce, live: Sequence[PilotRow], now: float
    ) -> list[Wanted]:
        staying = [pilot for pilot in live if not pilot.leave]
        free = capacity(ce, self.node)[0] - sum(pilot.processors for pilot in live)
        holding = jobs.having_jobs(tx.connection, staying)
        idle = Counter((p.processors, p.only_owner) for p in staying if p.id not in holding)
        gone = self._gave_way(pool, tx, live)
        hungry: set[QueueId] = set()
        entries = self._fitting(pool, ce, now)
        if free < 1 and not idle:
            # Only those can want anything that no pilot there is wide enough for.
            widest = max((pilot.processors for pilot in staying), default=0)
            entries = [entry for entry in entries if self._width(ce, entry) > widest]
        pool.rng.shuffle(entries)
        left = {entry.id: entry.waiting - self._covered(idle, ce, entry) for entry in entries}
        wanted = list(self._in_their_place(pool, tx, ce, gone, entries, left, free))
        free -= sum(one.processors for one in wanted)
        for entry in entries:
            need = self._width(ce, entry)
            while left[entry.id] and free >= need:
                wanted.append(Wanted(need, entry.id))
                free -= need
                left[entry.id] -= 1
            coming = any(one.processors == need for one in wanted)
            if left[entry.id] and not coming and not any(pilot.processors >= need for pilot in staying):
                hungry.add(entry.id)
                self._make_room(pool, tx, entry, need, staying, now, free)
        tx.set(self, "starved", {queue: since for queue, since in self.starved.items() if queue in hungry})
        return wanted

    def _covered(self, idle: Counter[tuple[int, str | None]], ce: Ce, entry: IndexedQueue) -> int:
        """How many of its jobs pilots without work will take; each of these covers one job."""
        need, covered = self._width(ce, entry), 0
        fitting = [one for one in idle if one[0] >= need and one[1] in (None, entry.identity.owner)]
        # The narrowest first, and those first that can serve nobody else.
        for one in sorted(fitting, key=lambda one: (one[0], one[1] is None)):
            taken = min(idle[one], entry.waiting - covered)
            idle[one] -= taken
            covered += taken
        return covered

    def _gave_way(self, pool: Pool, tx: Transaction, live: Sequence[PilotRow]) -> dict[PilotId, str]:
        """Pilots that have ended because it was another owner's turn, and whose turn it is now."""
        alive = {pilot.id for pilot in live}
        owners = {pilot.id: owner for pilot in live if (owner := next_owner(pilot.leave)) is not None}
        # Those that spoke to another server are known by their rows, seen in an earlier cycle.
        known = self.leaving | {
            pilot: turn.owner for pilot, turn in pool.turns.following.items() if turn.ce == self.ce
        }
        known = {pilot: owner for pilot, owner in known.items() if pilot not in alive}
        tx.set(self, "leaving", owners)
        return known

    def _in_their_place(
        self,
        pool: Pool,
        tx: Transaction,
        ce: Ce,
        gone: Mapping[PilotId, str],
        entries: Sequence[IndexedQueue],
        left: dict[QueueId, int],
        free: int,
    ) -> Iterator[Wanted]:
        """The pilots that follow those that gave way; counts down what is `left`."""
        for pilot, owner in gone.items():
            promised, undo = pool.turns.take_over(pilot)
            tx.on_rollback(undo)
            turn = promised or Turn(self.ce, owner, ce.quantum)
            entry = next(
                (
                    entry
                    for entry in entries
                    if entry.identity.owner == turn.owner
                    and left[entry.id] > 0
                    and self._width(ce, entry) <= free
                ),
                None,
            )
            if entry is None:
                tx.on_rollback(pool.turns.give_back(turn, None))
                continue
            left[entry.id] -= 1
            free -= self._width(ce, entry)
            yield Wanted(self._width(ce, entry), entry.id, turn)

    def _fitting(self, pool: Pool, ce: Ce, now: float) -> list[IndexedQueue]:
        """The queues that a pilot with all of the CE's capacity could serve, but for those that pause."""
        offer = possible_offer(pool, self.ce, self.node)
        closed = pool.limiter.used_up(offer.site, offer.ce, now)
        holds = Requirements(pool, offer, self.node, now)
        fitting = pool.index.candidates(offer, holds, closed)
        return [entry for entry in fitting if not self.back_off.pauses_at(entry.id, now)]

    def _width(self, ce: Ce, entry: IndexedQueue) -> int:
        """The processors of a pilot for one of these jobs: as many as bring the memory that it asks for."""
        cores, memory = capacity(ce, self.node)
        for_memory = -(-entry.identity.memory * cores // memory) if memory else 0
        return max(entry.identity.processors, for_memory)

    def _make_room(
        self,
        pool: Pool,
        tx: Transaction,
        entry: IndexedQueue,
        need: int,
        staying: Sequence[PilotRow],
        now: float,
        room: int,
    ) -> None:
        """Have narrow pilots end for a queue that needs one of `need` processors and has waited for long enough."""
        # After a clock that was set back the patience is counted from there.
        since = min(self.starved.get(entry.id, now), now)
        if self.starved.get(entry.id) != since:
            tx.put(self.starved, entry.id, since)
        if now - since < PATIENCE:
            return
        for pilot in staying:
            if room >= need:
                break
            tell_to_leave(pool, tx, pilot, "drain")
            room += pilot.processors

    # --- what the batch system says

    def action(self, pilot: SubmittedPilot, seen: Seen) -> Action:
        """What the hand-over says about a pilot that was looked up by its stamp."""
        # The processes of this machine cannot be held, and one listing of them is proof.
        sight = sight_of(seen, None, now=0.0, settle=0.0)
        return next_step(phase_of(pilot), sight, holds=False).action

    def started(self, pool: Pool, tx: Transaction, pilot: PilotId, batch_id: str) -> bool:
        """The pilot's process runs as `batch_id`; it may have called home already. False: it has been given up."""
        row = pilots.by_id(tx.connection, pilot)
        tx.discard(self.ordered, pilot)
        if row is None or row.ended is not None:
            return False
        pool.forget_pilot(row)
        changes: dict[str, object] = {"batch_id": batch_id}
        if row.state is PilotState.SUBMITTED:
            changes |= {"state": PilotState.WAITING, "lease_until": None}
        pilots.update(tx.connection, pilot, **changes)
        return True

    def aborted(self, pool: Pool, tx: Transaction, pilot: PilotId, reason: str, now: float) -> None:
        """The pilot's process was never started: what it was to use is free."""
        row = pilots.by_id(tx.connection, pilot)
        if row is None or row.ended is not None or row.started is not None:
            return
        end_silent_pilot(pool, tx, row, PilotEnd.NEVER_STARTED, reason, now)
        # An intent that an earlier server has left says nothing about this CE.
        if pilot in self.ordered:
            tx.discard(self.ordered, pilot)
            self._count_aborted(tx, True, now)

    def gone(
        self,
        pool: Pool,
        tx: Transaction,
        pilot: PilotRow | SubmittedPilot,
        last_words: str,
        now: float,
        listed: float = inf,
    ) -> None:
        """The batch system has no such process any more, as a complete listing of the instant `listed` says."""
        current = pilots.by_id(tx.connection, pilot.id)
        if current is None or current.ended is not None or pool.seen.get(pilot.id, -inf) > listed:
            return
        reason = f"ended without a word: {last_words}" if last_words else "ended without a word"
        new = end_silent_pilot(pool, tx, current, PilotEnd.VANISHED, reason, now)
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


def _last_seen(pilot: PilotRow, draining: bool) -> LastSeen:
    """`draining`: the server sends pilots away, so that an end says nothing."""
    had_job = pilot.take_number > 0
    by_itself = pilot.ended is not None and pilot.started is not None and not pilot.leave and not draining
    return LastSeen(pilot.id, had_job, by_itself and not had_job)


def tell_to_leave(pool: Pool, tx: Transaction, pilot: PilotRow, how: str) -> None:
    """Have a pilot leave at its next contact: "drain" after its jobs, "cancel" at once."""
    known = pool.pilots.get(pilot.token_hash or "")
    for row in filter(None, (pilot, known)):
        pool.touch_pilot(tx, row)
        row.leave = how
    pilots.update(tx.connection, pilot.id, leave=how)
