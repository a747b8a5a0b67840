"""How many pilots the local CE needs: up to its cores while jobs wait that they could run, none otherwise.

Demand is asked of the predicate that matches. Every waiting job is counted once, a pilot without work covers one.
"""

from __future__ import annotations

import secrets
from collections import Counter
from collections.abc import Sequence
from copy import deepcopy
from dataclasses import dataclass, field, replace

from pilotage.core.ids import PilotId, QueueId
from pilotage.core.pilots.backoff import BackOff, LastSeen
from pilotage.core.pilots.states import PILOT_STATES, PilotState
from pilotage.core.policy import Ce
from pilotage.core.queues.entry import Entry
from pilotage.services.enrolment import secret_hash
from pilotage.services.facts import DirectorNote
from pilotage.services.leases import take_back
from pilotage.services.matching import Requirements
from pilotage.services.moves import Moves
from pilotage.services.offers import capacity, possible_offer
from pilotage.services.pool import Pool
from pilotage.store import jobs, pilots
from pilotage.store.events import record
from pilotage.store.pilots import PilotRow, Watched
from pilotage.store.transaction import Transaction
from pilotage.wire.pilot import Node

PATIENCE = 30.0
"""Seconds for which a wide queue may wait before narrow pilots are told to leave for it."""


@dataclass(frozen=True, slots=True)
class Ordered:
    """A pilot whose intent is stored and that is to be started."""

    pilot: PilotId
    stamp: str
    secret: str
    index: int
    processors: int
    memory: int


@dataclass(slots=True)
class LocalDirector:
    """The director of one local CE. What it remembers is no state of the pool: it may be forgotten."""

    ce: str
    node: Node
    """What a pilot there finds."""
    starved: dict[QueueId, float] = field(default_factory=dict)
    aborted_in_a_row: int = 0
    not_before: float = 0.0
    back_off: BackOff = field(default_factory=BackOff)
    _ce: Ce | None = None
    """As the policy had it in the last cycle."""

    def order(self, pool: Pool, tx: Transaction, now: float) -> list[Ordered]:
        """Store the intent of the pilots that are wanted now."""
        pool.local_nodes[self.ce] = self.node
        ce = pool.policy.ces.get(self.ce)
        if ce is None:
            return []
        live = pilots.live(tx.connection, self.ce)
        self._look_back(pool, tx, ce, live, now)
        cores, all_memory = capacity(ce, self.node)
        pauses = self.back_off.pauses_for_all(now)
        idle = pool.draining or pool.policy.sites[ce.site].banned or now < self.not_before or pauses
        wanted = [] if idle else self._wanted(pool, tx, ce, live, now)
        used = sum(pilot.processors for pilot in live)
        not_before = max(self.not_before, self.back_off.all_until if pauses else 0.0)
        pool.directors[self.ce] = DirectorNote(
            now,
            len(wanted),
            len(live),
            cores,
            used,
            not_before if now < not_before else 0.0,
            {queue: replace(pause) for queue, pause in self.back_off.pauses.items()},
        )
        only_owner = pool.home_owner if ce.owners == "home" else None
        ordered = []
        for place, (processors, queue) in enumerate(wanted):
            stamp, secret = secrets.token_hex(8), secrets.token_urlsafe(32)
            memory = all_memory * processors // max(1, cores)
            pilot = pilots.insert(
                tx.connection,
                stamp=stamp,
                secret_hash=secret_hash(secret),
                idx=place,
                site=ce.site,
                ce=self.ce,
                only_owner=only_owner,
                pilot_type="generic",
                processors=processors,
                memory=memory,
                now=now,
                id_=pool.pilot_id(),
            )
            self.back_off.started_for[pilot] = queue
            ordered.append(Ordered(pilot, stamp, secret, place, processors, memory))
        return ordered

    def _look_back(self, pool: Pool, tx: Transaction, ce: Ce, live: Sequence[PilotRow], now: float) -> None:
        """Take in which of the pilots that were started here had a job."""
        back_off, before = self.back_off, deepcopy(self.back_off)
        tx.on_rollback(lambda: setattr(self, "back_off", before))
        if ce != self._ce:
            back_off.forget()
            self._ce = ce
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
    ) -> list[tuple[int, QueueId]]:
        """The pilots to start: their processors, and the queues that they are for."""
        staying = [pilot for pilot in live if not pilot.leave]
        free = capacity(ce, self.node)[0] - sum(pilot.processors for pilot in live)
        holding = jobs.with_any(tx.connection, staying)
        idle = Counter(pilot.processors for pilot in staying if pilot.id not in holding)
        wanted: list[tuple[int, QueueId]] = []
        hungry: set[QueueId] = set()
        entries = self._fitting(pool, ce, now)
        if free < 1 and not idle:
            # Only those can want anything that no pilot there is wide enough for.
            widest = max((pilot.processors for pilot in staying), default=0)
            entries = [entry for entry in entries if self._width(ce, entry) > widest]
        pool.rng.shuffle(entries)
        for entry in entries:
            need, left = self._width(ce, entry), entry.waiting
            while left and (width := next((w for w in sorted(idle) if w >= need and idle[w]), 0)):
                idle[width] -= 1
                left -= 1
            while left and free >= need:
                wanted.append((need, entry.id))
                free -= need
                left -= 1
            coming = any(processors == need for processors, _ in wanted)
            if left and not coming and not any(pilot.processors >= need for pilot in staying):
                hungry.add(entry.id)
                self._make_room(pool, tx, entry, need, staying, now, free)
        self.starved = {queue: since for queue, since in self.starved.items() if queue in hungry}
        return wanted

    def _fitting(self, pool: Pool, ce: Ce, now: float) -> list[Entry]:
        """The queues that a pilot with all of the CE's capacity could serve, but for those that pause."""
        offer = possible_offer(pool, self.ce, self.node)
        closed = pool.limiter.used_up(offer.site, offer.ce, now)
        holds = Requirements(pool, offer, self.node, now)
        fitting = pool.index.candidates(offer, holds, closed)
        return [entry for entry in fitting if not self.back_off.pauses_at(entry.id, now)]

    def _width(self, ce: Ce, entry: Entry) -> int:
        """The processors of a pilot for one of these jobs: as many as bring the memory that it asks for."""
        cores, memory = capacity(ce, self.node)
        for_memory = -(-entry.identity.memory * cores // memory) if memory else 0
        return max(entry.identity.processors, for_memory)

    def _make_room(
        self,
        pool: Pool,
        tx: Transaction,
        entry: Entry,
        need: int,
        staying: Sequence[PilotRow],
        now: float,
        room: int,
    ) -> None:
        """Have narrow pilots end for a queue that needs one of `need` processors and has waited for long enough."""
        if now - self.starved.setdefault(entry.id, now) < PATIENCE:
            return
        for pilot in staying:
            if room >= need:
                break
            tell_to_leave(pool, tx, pilot, "drain")
            room += pilot.processors

    # --- what the batch system says

    def started(self, pool: Pool, tx: Transaction, ordered: Ordered, batch_id: str, now: float) -> None:
        """The pilot's process runs; it may have called home already."""
        pilot = pilots.by_id(tx.connection, ordered.pilot)
        assert pilot is not None
        pool.forget_pilot(pilot)
        changes: dict[str, object] = {"batch_id": batch_id}
        if pilot.state is PilotState.SUBMITTED:
            changes["state"] = PilotState.WAITING
        pilots.update(tx.connection, pilot.id, **changes)

    def gone(
        self, pool: Pool, tx: Transaction, pilot: PilotRow | Watched, last_words: str, now: float
    ) -> None:
        """The batch system has no such process any more, and a complete listing says so."""
        current = pilots.by_id(tx.connection, pilot.id)
        if current is None or current.ended is not None:
            return
        pool.forget_pilot(current)
        moves = Moves(pool, tx, now, pool.batch(now, "server"))
        for job in jobs.of_pilot(tx.connection, current.id):
            take_back(moves, job, current, "its pilot ended without a word")
        moves.write()
        never_called = current.started is None
        new = PilotState.ABORTED if never_called else PilotState.FAILED
        PILOT_STATES.check(current.state, new)
        reason = f"ended without a word: {last_words}" if last_words else "ended without a word"
        pilots.update(tx.connection, current.id, state=new, ended=now, lease_until=None, reason=reason)
        record(
            tx.connection,
            pool.events,
            at=now,
            kind="pilot-lost",
            actor="server",
            detail=f"pilot {current.id}: {reason}",
            old=current.state,
            new=new,
        )
        pool.pilot_ended(tx, current.id)
        self._count_aborted(never_called, now)

    def _count_aborted(self, never_called: bool, now: float) -> None:
        """Pilots that never call home must not be started in a tight loop."""
        self.aborted_in_a_row = self.aborted_in_a_row + 1 if never_called else 0
        if self.aborted_in_a_row >= 3:
            self.not_before = now + min(300.0, 2.0**self.aborted_in_a_row)


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
