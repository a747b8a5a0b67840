"""CEs as their directors and administrators left them: a row for each, so that every server can explain it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import astuple, dataclass, fields
from enum import StrEnum
from typing import Any, NamedTuple

from pilotage.store.engine.connection import Connection, lock_clause
from pilotage.store.engine.decisions import SHOWN, hint
from pilotage.store.engine.rows import columns, replacement


class CeSwitch(StrEnum):
    """Whether pilots may be submitted to a CE at all."""

    ON = ""
    STOPPED = "stopped"
    """The director stopped after several pilots failed alike; a change of the CE's policy section ends it."""
    DISABLED = "disabled"
    """An administrator disabled the CE; an administrator enables it again."""


@dataclass(frozen=True, slots=True)
class CeProgress:
    """The columns that only the CE's director writes."""

    section: str = ""
    """Digest of the policy's section that this is about."""
    trouble: str = ""
    """Why the director pauses."""
    unreachable: str = ""
    """Why the last listing failed; empty: it was complete."""
    failures: int = 0
    """Pilots and submissions in a row that failed before a pilot called home."""
    not_before: float = 0.0
    """Nothing is submitted before this instant."""
    epoch: str = ""
    """Start of the batch system's controller in the last complete listing."""
    listed: float | None = None
    """Time of the last complete listing."""
    alike: int = 0
    """Failures in a row that are all `failure`."""
    failure: str = ""
    queues_paused: int = 0
    """Queues for which no pilot is submitted since the last ones had no job; 0 with an end below: all queues."""
    queues_until: float = 0.0
    """The end of the longest of these pauses."""
    orphans: int = 0
    """Batch jobs at the last listing whose pilots have ended: they take room."""
    orphans_since: float | None = None
    """The first end of their pilots."""
    unreachable_at: float | None = None
    """When `unreachable` was told last; None: an earlier version has not noted it."""


PROGRESS = tuple(field.name for field in fields(CeProgress))


class CeRow(NamedTuple):
    """A CE as the store has it."""

    ce: str
    progress: CeProgress
    switch: CeSwitch
    switched_by: str
    switch_reason: str
    switched: float | None


_COLUMNS = f"ce, {', '.join(PROGRESS)}, state, state_by, state_reason, state_since"


def _to_row(values: Sequence[Any]) -> CeRow:
    ce, *progress = values[: len(PROGRESS) + 1]
    state, *rest = values[len(PROGRESS) + 1 :]
    return CeRow(ce, CeProgress(*progress), CeSwitch(state), *rest)


@hint("the director locks the row before it decides")
def by_name(connection: Connection, ce: str) -> CeRow:
    """The row of a CE; default values if there is none."""
    values = connection.execute(f"SELECT {_COLUMNS} FROM ces WHERE ce = ?", (ce,)).fetchone()
    return new_row(ce) if values is None else _to_row(values)


def lock(connection: Connection, ce: str) -> CeRow:
    """The row of a CE, locked until this transaction ends; it is created if there is none.

    All decisions about the switch and the director's columns begin with it.
    """
    sql = f"SELECT {_COLUMNS} FROM ces WHERE ce = ?" + lock_clause(connection, "UPDATE")
    values = connection.execute(sql, (ce,)).fetchone()
    if values is None:
        connection.execute("INSERT INTO ces (ce) VALUES (?) ON CONFLICT (ce) DO NOTHING", (ce,))
        values = connection.execute(sql, (ce,)).fetchone()
    return _to_row(values)


def new_row(ce: str) -> CeRow:
    """The values of a CE without a row."""
    return CeRow(ce, CeProgress(), CeSwitch.ON, "", "", None)


@hint(SHOWN)
def all_rows(connection: Connection) -> dict[str, CeRow]:
    """All rows, by CE."""
    rows = (_to_row(values) for values in connection.execute(f"SELECT {_COLUMNS} FROM ces ORDER BY ce"))
    return {row.ce: row for row in rows}


@hint(SHOWN)
def switched_off(connection: Connection) -> list[str]:
    """The CEs that are disabled or stopped."""
    rows = connection.execute("SELECT ce FROM ces WHERE state <> ? ORDER BY ce", (str(CeSwitch.ON),))
    return [row[0] for row in rows]


def save_progress(connection: Connection, ce: str, progress: CeProgress) -> None:
    """Write the director's columns."""
    _upsert(connection, ce, dict(zip(PROGRESS, astuple(progress), strict=True)))


def set_switch(
    connection: Connection, ce: str, switch: CeSwitch, *, by: str, reason: str, now: float
) -> None:
    """Write whether pilots may be submitted; who decided that, why and when."""
    values = {"state": str(switch), "state_by": by, "state_reason": reason, "state_since": now}
    _upsert(connection, ce, values)


def _upsert(connection: Connection, ce: str, values: dict[str, Any]) -> None:
    connection.execute(replacement("ces", "ce", values), (ce, *values.values()))


class FailedPilot(NamedTuple):
    """A pilot that failed."""

    id: int
    stamp: str
    idx: int
    ended: float
    hostname: str
    reason: str
    had_jobs: bool


_FAILED_PILOT = columns(FailedPilot, had_jobs="take_number > 0")


RECENT_PILOTS = 5000
"""Pilots among which the last failures are looked for."""


def failed_pilots(connection: Connection, ce: str, most: int) -> list[FailedPilot]:
    """The last pilots of a CE that failed or never called home, newest first."""
    sql = (
        f"SELECT {_FAILED_PILOT} FROM"
        " (SELECT * FROM pilots ORDER BY id DESC LIMIT ?) AS recent"
        " WHERE ce = ? AND ended IS NOT NULL AND state IN ('Aborted', 'Failed') ORDER BY id DESC LIMIT ?"
    )
    rows = connection.execute(sql, (RECENT_PILOTS, ce, most))
    return [FailedPilot(*row) for row in rows]


@hint("the demand is counted again in each cycle of the director")
def pilot_counts(connection: Connection) -> dict[str, tuple[int, int]]:
    """CE → its live pilots that have not called home, and all others."""
    sql = (
        "SELECT ce, sum(CASE WHEN started IS NULL THEN 1 ELSE 0 END), count(*)"
        " FROM pilots WHERE ended IS NULL GROUP BY ce"
    )
    return {ce: (int(waiting), int(live - waiting)) for ce, waiting, live in connection.execute(sql)}


class LiveTotals(NamedTuple):
    """Totals of the live pilots of one CE."""

    pilots: int
    waiting: int
    """The pilots that have not called home."""
    processors: int


@hint("a maximum is counted again in each cycle of the director")
def live_totals(connection: Connection, ce: str) -> LiveTotals:
    """Totals of the pilots of a CE that have not ended."""
    sql = (
        "SELECT count(*), coalesce(sum(CASE WHEN started IS NULL THEN 1 ELSE 0 END), 0),"
        " coalesce(sum(processors), 0) FROM pilots WHERE ended IS NULL AND ce = ?"
    )
    return LiveTotals(*(int(value) for value in connection.execute(sql, (ce,)).fetchone()))


class OpenSubmissions(NamedTuple):
    """Submissions of a CE that have not ended, and are alike."""

    ce: str
    phase: str
    reason: str
    """The batch system's last words."""
    wait_class: str
    number: int
    submitted: float
    """The submission time of the oldest."""
    since: float | None
    """Since when the first of them waits so."""


def open_submissions(connection: Connection) -> list[OpenSubmissions]:
    """The submissions that have not ended, by CE, phase and reason."""
    sql = (
        "SELECT ce, phase, reason, wait_class, count(*), min(submitted), min(wait_since) FROM pilot_submissions"
        " WHERE ended IS NULL GROUP BY ce, phase, reason, wait_class"
    )
    return [OpenSubmissions(*row) for row in connection.execute(sql)]
