"""Core-seconds in four books: those that payloads ran, those of accounting, of shares and of the costs of pilots."""

from __future__ import annotations

from pilotage.store.tables.usage import BEGAN, WALL
from tests.simulation.broken import need
from tests.simulation.payloads import PayloadBooks, incarnation_of
from tests.simulation.restores import Restores
from tests.simulation.stores import Rows

PART = 0.05
"""The part by which a sum may differ."""
OF_START = 0.1
"""Seconds on the way of a message, by which each attempt may differ."""


def nothing_is_booked_without_a_start(connection: Rows, payloads: PayloadBooks, restores: Restores) -> None:
    """An attempt that its pilot has given back, and that it never started, has no time: whatever happened."""
    ran = {(entry.job, entry.epoch) for entry in payloads.entries}
    booked = [
        tuple(row)
        for row in connection.execute(
            f"SELECT job_id, epoch, started, ended, {WALL} FROM attempts"
            " WHERE outcome = 'released' AND (ended > started OR wall > 0)"
        )
        if (row[0], row[1]) not in ran
    ]
    need(not booked, f"booked, and never started: {booked[:3]}")
    begun = {
        (entry.job, entry.epoch)
        for entry in payloads.entries
        if entry.finish is not None
        and entry.finish.failure != "killed"
        and not restores.may_be_forgotten(incarnation_of(entry.pilot), entry.begin)
    }
    unbegun = connection.execute("SELECT job_id, epoch FROM attempts WHERE ahead = 1 AND outcome = 'applied'")
    wrong = begun & {(row[0], row[1]) for row in unbegun}
    need(not wrong, f"applied, though told not to have begun: {sorted(wrong)[:3]}")


def sums(connection: Rows, payloads: PayloadBooks) -> dict[str, float]:
    """The core-seconds of all jobs, in each book."""
    accounting = f"SELECT coalesce(sum(processors * ({WALL})), 0) FROM attempts WHERE {BEGAN}"
    [accounted] = connection.execute(accounting).fetchone()
    [cost] = connection.execute("SELECT coalesce(sum(payload), 0) FROM costs").fetchone()
    return {
        "ran": sum((entry.end - entry.begin) * entry.processors for entry in payloads.entries if entry.end),
        "accounting": accounted,
        "cost": cost,
    }


def all_books_agree(connection: Rows, payloads: PayloadBooks, shares: float) -> None:
    """In a history without faults. With them, an attempt lasts until the server hears of its end."""
    found = sums(connection, payloads) | {"shares": shares}
    slack = PART * found["ran"] + OF_START * sum(entry.processors for entry in payloads.entries)
    wrong = {
        name: round(seconds, 1) for name, seconds in found.items() if abs(seconds - found["ran"]) > slack
    }
    need(
        not wrong, f"core-seconds that ran: {found['ran']:.1f}; booked with {slack:.1f} more or less: {wrong}"
    )
