"""The first phase of a CE's director: it stores the intents of the submissions that the CE needs.

An intent is stored before the batch system is called. So no pilot is ever started that the store does not know.
"""

from __future__ import annotations

from copy import deepcopy
from dataclasses import replace

from pilotage.core.pilots.backoff import BackOff, LastSeen
from pilotage.core.pilots.states import PilotState
from pilotage.core.policy import Ce
from pilotage.core.sites import SiteState
from pilotage.services.director.budgets import exhausted, status_of
from pilotage.services.director.ce_director import CeDirector, ChosenOrders, CycleFacts
from pilotage.services.director.ce_record import CALLED_HOME, ENDED_SILENTLY
from pilotage.services.director.probes import is_wanted, mark_submitted
from pilotage.services.director.submissions import SubmissionIntent, SubmissionOrder, store_submission
from pilotage.services.pilots.lifecycle import LEASE_OVER
from pilotage.services.pool.records import DirectorNote
from pilotage.services.pool.state import Pool
from pilotage.store.tables import ces, pilots
from pilotage.store.tables.ces import CeSwitch, LiveTotals
from pilotage.store.tables.pilots import PilotRow
from pilotage.store.writer.transaction import Transaction


def order_pilots(
    director: CeDirector, pool: Pool, tx: Transaction, now: float, live: LiveTotals | None = None
) -> list[SubmissionIntent]:
    """Store the intents of the submissions that the CE needs now, and of a probe that somebody asks for.

    `live`: the totals of its pilots, not older than its last intent; None: they are read here.
    """
    ce = expect_node(director, pool, tx)
    if ce is None:
        return []
    tx.set(director, "no_room", "")
    row = director.memory.restore(tx)
    _look_back(director, pool, tx, ce, now, row.switched)
    switch = ces.by_name(tx.connection, director.ce).switch  # It may have stopped just now.
    is_open = switch is CeSwitch.ON and not _holds_back(director, pool, ce, now)
    budget = status_of(tx.connection, director.ce, ce, now)
    facts = CycleFacts(ce, now, is_open, budget, live)
    chosen = director.rule.choose(director, pool, tx, facts)
    tx.put(pool.provisioning.directors, director.ce, _note(director, facts, chosen))
    director.memory.store(tx)
    intents = [_store_intent(director, pool, tx, ce, order, now) for order in chosen.orders]
    has_room = budget is None or _pilots_of(chosen) < budget.room
    if has_room and not pool.server.draining and is_wanted(tx, director.ce, now):
        probe = director.rule.probe(ce)
        intent = store_submission(pool, tx, director.ce, ce, probe, now, director.place)
        mark_submitted(tx, director.ce, intent.members[0])
        intents.append(intent)
    return intents


def expect_node(director: CeDirector, pool: Pool, tx: Transaction) -> Ce | None:
    """Note the node that a new pilot of the CE would find, also while its batch system does not answer.

    Then `why` knows which jobs wait for this CE. None: the policy does not have it any more.
    """
    ce = pool.policy.ces.get(director.ce)
    if ce is not None:
        tx.put(pool.ces.nodes, director.ce, director.rule.node(ce))
    return ce


def _pilots_of(chosen: ChosenOrders) -> int:
    return sum(order.pilots for order in chosen.orders)


def _store_intent(
    director: CeDirector, pool: Pool, tx: Transaction, ce: Ce, order: SubmissionOrder, now: float
) -> SubmissionIntent:
    intent = store_submission(pool, tx, director.ce, ce, order, now, director.place)
    if order.queue is not None:
        director.back_off.started_for.update(dict.fromkeys(intent.members, order.queue))
    if order.turn is not None:
        tx.on_rollback(pool.shares.turns.start(intent.members[0], order.turn))
    return intent


def _holds_back(director: CeDirector, pool: Pool, ce: Ce, now: float) -> bool:
    """Whether no pilot is submitted at all now."""
    paused = director.memory.is_paused(now) or director.back_off.pauses_for_all(now)
    return pool.server.draining or pool.site_state(ce.site) is SiteState.DOWN or paused


def _look_back(
    director: CeDirector, pool: Pool, tx: Transaction, ce: Ce, now: float, switched: float | None
) -> None:
    """Learn which of the pilots that were submitted here had a job."""
    back_off, memory = deepcopy(director.back_off), director.memory
    tx.set(director, "back_off", back_off)
    if ce != director.section:
        tx.set(director, "section", ce)
        if memory.begin_section(pool, tx, ce, now):
            back_off.forget()
    back_off.follow_switch(switched)
    rows = _observe_pilots(pool, tx, back_off, now)
    queues, until = back_off.paused_queues(now)
    tx.set(memory, "queues_paused", queues)
    tx.set(memory, "queues_until", until)
    started = [row for row in rows if row.started is not None]
    if started:
        memory.pilot_started(tx, had_job=any(row.take_number for row in started))
    for row in filter(_is_unfit, rows):
        memory.count_failure(pool, tx, f"{CALLED_HOME}: {row.reason}", now)


def _observe_pilots(pool: Pool, tx: Transaction, back_off: BackOff, now: float) -> list[PilotRow]:
    """Learn which pilots of `back_off` had a job; their rows. Pilots that have ended are forgotten."""
    rows = pilots.read_by_ids(tx.connection, list(back_off.started_for))
    entries = (
        pool.queues.index.entries.get(queue) for queue in {*back_off.pauses, *back_off.started_for.values()}
    )
    waiting = {entry.id: entry.waiting for entry in entries if entry is not None}
    back_off.observe([last_seen(row, pool.server.draining) for row in rows], waiting, now)
    alive = {row.id for row in rows if row.ended is None}
    for pilot in [pilot for pilot in back_off.started_for if pilot not in alive]:
        back_off.ended(pilot)
    return rows


def last_seen(pilot: PilotRow, draining: bool) -> LastSeen:
    """A pilot as its director's back-off sees it. `draining`: the server sends pilots away, so an end says nothing."""
    had_job = pilot.take_number > 0
    by_itself = pilot.ended is not None and pilot.started is not None and not pilot.leave and not draining
    return LastSeen(pilot.id, pilot.submission_stamp, had_job, by_itself and not had_job)


def _is_unfit(pilot: PilotRow) -> bool:
    """Whether a pilot has left since no payload may run on its node: no job fits it.

    Pilots that ended silently have failed too; the watch of listings counts them.
    """
    silent = (ENDED_SILENTLY, LEASE_OVER)
    return pilot.state is PilotState.FAILED and not pilot.take_number and not pilot.reason.startswith(silent)


def _note(director: CeDirector, facts: CycleFacts, chosen: ChosenOrders) -> DirectorNote:
    """The note of one cycle, for `why` and for the next iteration."""
    now, back_off, ordered = facts.now, director.back_off, _pilots_of(chosen)
    pauses = [director.memory.not_before, back_off.all_until if back_off.pauses_for_all(now) else 0.0]
    return DirectorNote(
        now,
        ordered,
        chosen.live.pilots,
        chosen.cores,
        chosen.live.processors,
        max(pauses) if now < max(pauses) else 0.0,
        {queue: replace(pause) for queue, pause in back_off.pauses.items()},
        exhausted(facts.budget),
        None if facts.budget is None else facts.budget.room - ordered,
    )
