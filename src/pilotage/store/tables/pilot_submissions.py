"""Submissions of pilots to batch systems: a row for each array of equal pilots, from its intent to its last pilot."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from pilotage.core.pilots.handover import SubmissionPhase
from pilotage.store.engine.connection import Connection, in_list
from pilotage.store.engine.decisions import ONE_SERVER, decision, overwrites
from pilotage.store.engine.rows import columns


@dataclass(frozen=True, slots=True)
class PilotSubmissionRow:
    """A submission as the store has it."""

    id: int
    stamp: str
    """The name that its pilots have in the batch system."""
    ce: str
    phase: SubmissionPhase
    pilots: int
    batch_id: str
    """Empty until the batch system has acknowledged it, or a listing has shown it."""
    epoch: str
    """The start of the batch system's controller at the release."""
    absent_since: float | None
    """When a complete listing first lacked it before its release, and each one since."""
    reason: str
    """The batch system's last words about it: why it waits, or why it was refused."""
    submitted: float
    releases: int
    """Calls that released it, since a listing last showed it not held."""
    wait_class: str
    """Why its batch jobs wait, as a `WaitClass`; empty: none waits."""
    wait_since: float | None
    """Since when listings show this class."""


_COLUMNS = columns(PilotSubmissionRow)
_CHANGEABLE = frozenset(
    ["phase", "batch_id", "epoch", "absent_since", "reason", "ended", "releases", "wait_class", "wait_since"]
)


def _to_row(row: Sequence[Any]) -> PilotSubmissionRow:
    id_, stamp, ce, phase, *rest = row
    return PilotSubmissionRow(id_, stamp, ce, SubmissionPhase(phase), *rest)


def insert(
    connection: Connection, *, stamp: str, ce: str, phase: SubmissionPhase, pilots: int, now: float
) -> int:
    """Store an intent before the batch system is called; its id."""
    sql = "INSERT INTO pilot_submissions (stamp, ce, phase, pilots, submitted) VALUES (?, ?, ?, ?, ?) RETURNING id"
    return int(connection.execute(sql, (stamp, ce, str(phase), pilots, now)).fetchone()[0])


@decision(ONE_SERVER)
def live(connection: Connection, ce: str) -> list[PilotSubmissionRow]:
    """The submissions of a CE that have not ended, oldest first."""
    sql = f"SELECT {_COLUMNS} FROM pilot_submissions WHERE ended IS NULL AND ce = ? ORDER BY id"
    return [_to_row(row) for row in connection.execute(sql, (ce,))]


@decision(ONE_SERVER)
def live_by_stamp(connection: Connection, stamp: str) -> PilotSubmissionRow | None:
    """A submission that has not ended."""
    sql = f"SELECT {_COLUMNS} FROM pilot_submissions WHERE ended IS NULL AND stamp = ?"
    row = connection.execute(sql, (stamp,)).fetchone()
    return None if row is None else _to_row(row)


@decision(ONE_SERVER)
def ended_stamps(connection: Connection, ce: str, stamps: Sequence[str]) -> set[str]:
    """The subset of `stamps` whose submissions have ended: batch jobs of these names have been given up."""
    ended = set()
    for stamp in stamps:
        sql = "SELECT 1 FROM pilot_submissions WHERE ended IS NOT NULL AND ce = ? AND stamp = ?"
        if connection.execute(sql, (ce, stamp)).fetchone() is not None:
            ended.add(stamp)
    return ended


@overwrites("a pilot that is heard lives, whatever its batch system has said")
def reopen(connection: Connection, stamp: str) -> None:
    """A pilot of a submission that had ended lives: listings watch it again."""
    sql = "UPDATE pilot_submissions SET ended = NULL WHERE stamp = ? AND ended IS NOT NULL"
    connection.execute(sql, (stamp,))


@overwrites(ONE_SERVER)
def update(connection: Connection, submission: int, **changes: Any) -> None:
    """Write some columns of one submission."""
    if unknown := changes.keys() - _CHANGEABLE:
        raise ValueError(f"not changeable: {unknown}")
    columns = ", ".join(f"{column} = ?" for column in changes)
    values = [str(value) if isinstance(value, SubmissionPhase) else value for value in changes.values()]
    connection.execute(f"UPDATE pilot_submissions SET {columns} WHERE id = ?", (*values, submission))


@overwrites("no server uses the database")
def disown_live(connection: Connection, prefix: str, now: float, reason: str) -> None:
    """End all submissions, and forget their names in batch systems: they belong to another instance."""
    sql = "UPDATE pilot_submissions SET stamp = ? || stamp, batch_id = '', ended = ?, reason = ? WHERE ended IS NULL"
    connection.execute(sql, (prefix, now, reason))


class SubmissionMember(NamedTuple):
    """The columns of a pilot that a listing is compared with."""

    idx: int
    started: float | None
    batch_id: str
    cores_from: float | None
    leave: str
    absent_since: float | None


@decision(ONE_SERVER)
def members(connection: Connection, stamps: Sequence[str]) -> list[SubmissionMember]:
    """The pilots with these stamps that have not ended, without a lock."""
    condition, value = in_list(connection, "stamp", stamps)
    sql = f"SELECT {', '.join(SubmissionMember._fields)} FROM pilots WHERE {condition} AND ended IS NULL"
    return [SubmissionMember(*row) for row in connection.execute(sql, (value,))]


class LiveMembers(NamedTuple):
    """The pilots of one submission that have not ended."""

    live: int
    killed: int
    """The part of them that an administrator has killed."""


@decision(ONE_SERVER)
def live_by_submission(connection: Connection, ce: str) -> dict[str, LiveMembers]:
    """The numbers of live pilots of a CE by the stamp of their submission, whose pilots share a secret."""
    sql = (
        "SELECT min(stamp), count(*), sum(CASE WHEN leave = 'kill' THEN 1 ELSE 0 END) FROM pilots"
        " WHERE ended IS NULL AND ce = ? GROUP BY secret_hash"
    )
    return {
        stamp.rpartition("/")[0]: LiveMembers(int(count), int(killed))
        for stamp, count, killed in connection.execute(sql, (ce,))
    }
