"""Books the core-seconds of pilots, and reports them.

A live pilot is booked up to its last sign of life, an ended one to its end. A booking counts once: it is saved only
if nobody has booked the pilot since its row was read.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from math import ceil, floor

from pilotage.core.ids import PilotId
from pilotage.core.pilots.cost import HOUR, CoreSeconds, Costs, HeldCores, add_costs, book, total_of
from pilotage.services.shares.accounting import months
from pilotage.store.engine.connection import Connection
from pilotage.store.tables import costs
from pilotage.store.tables.costs import UnbookedPilot
from pilotage.store.writer.transaction import Transaction
from pilotage.wire.costs import CostReport, CostRow

SETTLING = 2.0
"""Seconds after which the messages of a pilot are committed: a reader sees all that it has said before."""

MOST_ENDED = 5000
"""Ended pilots of one pass."""

IN_ONE_TRANSACTION = 200

SAME_PERIOD = 600.0
"""Pilots whose unbooked time begins within this many seconds are booked with one query."""


@dataclass(frozen=True, slots=True)
class Booking:
    """Core-seconds of one pilot that are not saved yet."""

    pilot: PilotId
    booked_until: float | None
    """The value of the pilot's row before."""
    until: float
    costs: Costs


def unbooked(
    connection: Connection, heard: Mapping[PilotId, float], now: float, *, ended: bool = True
) -> list[tuple[UnbookedPilot, float]]:
    """The pilots with unbooked core-seconds, each with the instant up to which they are certain.

    `heard`: the signs of life that this server has. `ended`: also pilots that have ended.
    """
    rows = []
    for pilot in costs.live_pilots(connection):
        until = min(heard.get(pilot.life.pilot, 0.0), now - SETTLING)
        if until > pilot.since:
            rows.append((pilot, until))
    for pilot in costs.ended_pilots(connection, MOST_ENDED) if ended else ():
        rows.append((pilot, pilot.cores_until or pilot.since))
    return rows


def book_pilots(
    connection: Connection, rows: Sequence[tuple[UnbookedPilot, float]]
) -> Iterator[list[Booking]]:
    """The bookings of these pilots, a few at a time. Between them the list may be empty."""
    for begin, group in _groups(rows):
        held: dict[PilotId, list[HeldCores]] = {pilot.life.pilot: [] for pilot, _ in group}
        for batch in costs.held_cores(connection, begin):
            for id_, cores in batch:
                if id_ in held:
                    held[id_].append(cores)
            yield []
        for first in range(0, len(group), IN_ONE_TRANSACTION):
            yield [
                Booking(
                    pilot.life.pilot,
                    pilot.booked_until,
                    until,
                    book(pilot.life, pilot.since, until, held[pilot.life.pilot]),
                )
                for pilot, until in group[first : first + IN_ONE_TRANSACTION]
            ]


def _groups(
    rows: Sequence[tuple[UnbookedPilot, float]],
) -> Iterator[tuple[float, list[tuple[UnbookedPilot, float]]]]:
    """Group pilots by the begin of their unbooked time: one that was silent for long costs the others nothing."""
    group: list[tuple[UnbookedPilot, float]] = []
    for row in sorted(rows, key=lambda row: row[0].since):
        if group and row[0].since - group[0][0].since > SAME_PERIOD:
            yield group[0][0].since, group
            group = []
        group.append(row)
    if group:
        yield group[0][0].since, group


def save_bookings(tx: Transaction, bookings: Sequence[Booking]) -> None:
    """Save bookings, except of pilots that were booked meanwhile."""
    known = costs.booked_until(tx.connection, [booking.pilot for booking in bookings])
    total: Costs = {}
    for booking in bookings:
        if booking.pilot in known and known[booking.pilot] == booking.booked_until:
            add_costs(total, booking.costs)
            costs.save_booking(tx.connection, booking.pilot, booking.until, total_of(booking.costs))
    costs.add(tx.connection, total)


class CostsBy(StrEnum):
    """The meaning of a row of a report."""

    CE = "ce"
    OWNER = "owner"
    GROUP = "group"
    MONTH = "month"


@dataclass(frozen=True, slots=True)
class CostQuestion:
    """A question about costs, of the hours from `begin` on."""

    begin: float | None
    """None: from the first booked hour on."""
    by: CostsBy
    ce: str | None = None
    owner: str | None = None
    """Only this owner's; None: everybody's."""


def cost_report(
    connect: Callable[[], Connection], heard: Mapping[PilotId, float], question: CostQuestion, now: float
) -> CostReport:
    """The booked core-seconds, and the certain ones that are not booked yet."""
    connection = connect()
    pending: Costs = {}
    for bookings in book_pilots(connection, unbooked(connection, heard, now)):
        for booking in bookings:
            add_costs(pending, booking.costs)
    first = min((key.hour for key in pending), default=floor(now / HOUR) * HOUR)
    booked_first = costs.first_hour(connection)
    first = first if booked_first is None else min(first, booked_first)
    begin = first if question.begin is None else floor(question.begin / HOUR) * HOUR
    total: dict[str, CoreSeconds] = defaultdict(CoreSeconds)
    # Nothing is booked before the first hour: a report by month begins with it.
    for month, start, stop in _periods(question.by, max(begin, first), now):
        sums = costs.sums(connection, start, stop, ce=question.ce, owner=question.owner)
        for key, seconds in pending.items():
            if start <= key.hour < stop and _asks_for(question, key.ce, key.owner):
                sums.setdefault((key.ce, key.owner, key.group), CoreSeconds()).add(seconds)
        for (ce, owner, group), seconds in sums.items():
            names = {CostsBy.CE: ce, CostsBy.OWNER: owner, CostsBy.GROUP: group, CostsBy.MONTH: month}
            total[names[question.by]].add(seconds)
    rows = [_row(name, seconds) for name, seconds in sorted(total.items())]
    everything = CoreSeconds()
    for seconds in total.values():
        everything.add(seconds)
    return CostReport(float(begin), now, question.by.value, rows, _row("", everything))


def _periods(by: CostsBy, begin: int, now: float) -> list[tuple[str, int, int]]:
    """(month, start, end): each month for a report by month, else one period without a name."""
    if by is not CostsBy.MONTH:
        return [("", begin, ceil(now) + 1)]
    return [(name, ceil(start), ceil(stop)) for name, start, stop in months(begin, ceil(now) + 1)]


def _asks_for(question: CostQuestion, ce: str, owner: str) -> bool:
    return question.ce in (None, ce) and question.owner in (None, owner)


def _row(name: str, seconds: CoreSeconds) -> CostRow:
    return CostRow(
        name,
        seconds.payload,
        seconds.startup,
        seconds.idle,
        seconds.lost,
        seconds.total,
        seconds.efficiency,
    )
