"""Core-seconds of pilots: the booked ones by CE, hour, owner and group, and the facts to book further ones from."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from math import floor
from typing import Any, NamedTuple

from pilotage.core.ids import PilotId
from pilotage.core.pilots.cost import HOUR, CoreSeconds, CostKey, HeldCores, PilotLife
from pilotage.core.policy.budget import PilotBurn
from pilotage.store.engine.connection import Connection, in_list, lock_clause
from pilotage.store.engine.decisions import ONE_SERVER, decision, hint
from pilotage.store.schema.pilots import UNBOOKED

BATCH_SIZE = 1000
"""Attempts read at a time."""


class UnbookedPilot(NamedTuple):
    """A pilot with core-seconds that may not be booked yet."""

    life: PilotLife
    booked_until: float | None
    cores_until: float | None
    """None: it has not ended."""

    @property
    def since(self) -> float:
        """The first instant that is not booked."""
        return self.life.cores_from if self.booked_until is None else self.booked_until


_PILOT = (
    "id, ce, coalesce(only_owner, ''), CASE WHEN only_owner IS NULL THEN '' ELSE grp END, processors,"
    " cores_from, started, silent_from, silent_until, booked_until, cores_until"
)


def _to_pilot(row: Sequence[Any]) -> UnbookedPilot:
    *life, booked_until, cores_until = row
    return UnbookedPilot(PilotLife(*life), booked_until, cores_until)


def live_pilots(connection: Connection) -> list[UnbookedPilot]:
    """The pilots that have called home and have not ended."""
    sql = (
        f"SELECT {_PILOT} FROM pilots WHERE ended IS NULL AND started IS NOT NULL AND cores_from IS NOT NULL"
    )
    return [_to_pilot(row) for row in connection.execute(sql)]


def ended_pilots(connection: Connection, most: int) -> list[UnbookedPilot]:
    """At most `most` pilots that have ended and whose core-seconds are not all booked, oldest first."""
    sql = f"SELECT {_PILOT} FROM pilots WHERE {UNBOOKED} AND cores_from IS NOT NULL ORDER BY id LIMIT ?"
    return [_to_pilot(row) for row in connection.execute(sql, (most,))]


def held_cores(connection: Connection, since: float) -> Iterator[list[tuple[PilotId, HeldCores]]]:
    """The attempts that held cores after `since`, with their pilots, in batches."""
    columns = "pilot_id, owner, grp, processors, started"
    sql = (
        f"SELECT {columns}, ended FROM attempts WHERE ended > ?"
        f" UNION ALL SELECT {columns}, NULL FROM attempts WHERE ended IS NULL"
    )
    for rows in connection.fetch_batches(sql, (since,), BATCH_SIZE):
        yield [(PilotId(row[0]), HeldCores(*row[1:])) for row in rows]


def booked_until(connection: Connection, pilots: Sequence[PilotId]) -> dict[PilotId, float | None]:
    """Until when the core-seconds of these pilots are booked. Their rows are locked until the transaction ends."""
    condition, values = in_list(connection, "id", pilots)
    sql = f"SELECT id, booked_until FROM pilots WHERE {condition} ORDER BY id"
    rows = connection.execute(sql + lock_clause(connection, "UPDATE"), (values,))
    return {PilotId(row[0]): row[1] for row in rows}


_SAVE_BOOKING = (
    "UPDATE pilots SET booked_until = ?, core_seconds = core_seconds + ?,"
    " payload_core_seconds = payload_core_seconds + ? WHERE id = ?"
)


def save_booking(connection: Connection, pilot: PilotId, until: float, more: CoreSeconds) -> None:
    """Note that a pilot is booked until `until`, and add `more` to the sums of its row."""
    connection.execute_later(_SAVE_BOOKING, (until, more.total, more.payload, pilot))


_ADD = (
    "INSERT INTO costs (ce, hour, owner, grp, payload, startup, idle, lost) VALUES (?, ?, ?, ?, ?, ?, ?, ?)"
    " ON CONFLICT (ce, hour, owner, grp) DO UPDATE SET payload = costs.payload + excluded.payload,"
    " startup = costs.startup + excluded.startup, idle = costs.idle + excluded.idle,"
    " lost = costs.lost + excluded.lost"
)


def add(connection: Connection, costs: Mapping[CostKey, CoreSeconds]) -> None:
    """Add core-seconds to the booked ones."""
    for key, seconds in sorted(costs.items()):
        values = (seconds.payload, seconds.startup, seconds.idle, seconds.lost)
        connection.execute_later(_ADD, (*key, *values))


_SUMS = "sum(payload), sum(startup), sum(idle), sum(lost)"


def sums(
    connection: Connection, begin: int, end: int, *, ce: str | None = None, owner: str | None = None
) -> dict[tuple[str, str, str], CoreSeconds]:
    """(CE, owner, group) → core-seconds booked for the hours that start in [begin, end)."""
    conditions, values = (
        ["hour >= ?", "hour < ?"],
        [begin, end, *(name for name in (ce, owner) if name is not None)],
    )
    conditions += [f"{column} = ?" for column, name in (("ce", ce), ("owner", owner)) if name is not None]
    sql = (
        f"SELECT ce, owner, grp, {_SUMS} FROM costs WHERE {' AND '.join(conditions)} GROUP BY ce, owner, grp"
    )
    rows = connection.execute(sql, values)
    return {(row[0], row[1], row[2]): CoreSeconds(*row[3:]) for row in rows}


def first_hour(connection: Connection) -> int | None:
    """The start of the first hour with booked core-seconds; None: nothing is booked."""
    row = connection.execute("SELECT min(hour) FROM costs").fetchone()
    return None if row[0] is None else int(row[0])


@hint("a budget is looked at again in each cycle of the director")
def used_since(connection: Connection, ce: str, since: float) -> float:
    """Core-seconds of a CE that are booked for `since` and later. The hour of `since` counts whole."""
    sql = "SELECT coalesce(sum(payload + startup + idle + lost), 0) FROM costs WHERE ce = ? AND hour > ?"
    return float(connection.execute(sql, (ce, floor(since) - HOUR)).fetchone()[0])


_BURN = "id, processors, wall, cores_from, booked_until, cores_until"


@hint("a budget is looked at again in each cycle of the director")
def burning_pilots(
    connection: Connection, ce: str, wall: float, stamps: Sequence[str], listed: float
) -> list[PilotBurn]:
    """The pilots of a CE with core-seconds that are not booked yet, or that may still use some.

    `wall`: of pilots whose row has none. `stamps`: of all pilots in submissions that have not ended. Of these, a
    pilot that has ended may keep its cores, unless the complete listing of the instant `listed` did not have it.
    """
    burning: dict[int, PilotBurn] = {}

    def collect(where: str, values: Sequence[Any], *, may_run: bool) -> None:
        rows = connection.execute(f"SELECT {_BURN} FROM pilots WHERE {where}", values)
        for id_, processors, own_wall, begin, booked, end in rows:
            burning[id_] = PilotBurn(processors, own_wall or wall, begin, booked, end, may_run)

    collect(f"{UNBOOKED} AND ended IS NOT NULL AND ce = ?", (ce,), may_run=False)
    collect("ended IS NULL AND ce = ?", (ce,), may_run=True)
    if stamps:
        condition, value = in_list(connection, "stamp", stamps)
        lingering = f"{condition} AND ended IS NOT NULL AND cores_until >= ?"
        collect(lingering, (value, listed), may_run=True)
    return list(burning.values())


@decision(ONE_SERVER)
def delete_before(connection: Connection, before: float, most: int) -> int:
    """Delete at most `most` rows of hours that ended before `before`; their number."""
    sql = "SELECT ce, hour, owner, grp FROM costs WHERE hour < ? ORDER BY hour LIMIT ?"
    keys = connection.execute(sql, (floor(before) - HOUR, most)).fetchall()
    if keys:
        delete = "DELETE FROM costs WHERE ce = ? AND hour = ? AND owner = ? AND grp = ?"
        connection.executemany(delete, [tuple(key) for key in keys])
    return len(keys)
