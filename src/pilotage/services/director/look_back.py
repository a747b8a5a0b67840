"""Parts that the directors of local CEs and of batch systems share: which pilots had jobs, and the note for `why`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from pilotage.core.pilots.backoff import BackOff, LastSeen
from pilotage.core.pilots.states import PilotState
from pilotage.services.director.ce_record import ENDED_SILENTLY
from pilotage.services.pilots.lifecycle import LEASE_OVER
from pilotage.services.pool.records import DirectorNote
from pilotage.services.pool.state import Pool
from pilotage.store.tables import pilots
from pilotage.store.tables.ces import LiveTotals
from pilotage.store.tables.pilots import PilotRow
from pilotage.store.writer.transaction import Transaction


def observe_pilots(pool: Pool, tx: Transaction, back_off: BackOff, now: float) -> list[PilotRow]:
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


def is_unfit(pilot: PilotRow) -> bool:
    """Whether a pilot has left since no payload may run on its node: no job fits it.

    Pilots that ended silently have failed too; the watch of listings counts them.
    """
    silent = (ENDED_SILENTLY, LEASE_OVER)
    return pilot.state is PilotState.FAILED and not pilot.take_number and not pilot.reason.startswith(silent)


def note_cycle(
    now: float,
    ordered: int,
    live: LiveTotals,
    cores: int,
    back_off: BackOff,
    not_before: float,
    budget: str,
    budget_room: int | None = None,
) -> DirectorNote:
    """The note of one cycle. `not_before`: the end of the CE's own pause. `budget`: why it allows no further pilot."""
    paused_until = max(not_before, back_off.all_until if back_off.pauses_for_all(now) else 0.0)
    return DirectorNote(
        now,
        ordered,
        live.pilots,
        cores,
        live.processors,
        paused_until if now < paused_until else 0.0,
        {queue: replace(pause) for queue, pause in back_off.pauses.items()},
        budget,
        budget_room,
    )


def totals_of(live: Sequence[PilotRow]) -> LiveTotals:
    """The totals of these live pilots."""
    waiting = sum(pilot.started is None for pilot in live)
    return LiveTotals(len(live), waiting, sum(pilot.processors for pilot in live))
