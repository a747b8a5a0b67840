"""The instance itself: its name, incarnation, last sign of life, and the versions of its policy."""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Instance:
    uuid: str
    incarnation: int
    alive_at: float


def load(connection: sqlite3.Connection) -> Instance | None:
    row = connection.execute("SELECT uuid, incarnation, alive_at FROM instance WHERE id = 1").fetchone()
    return Instance(*row) if row else None


def create(connection: sqlite3.Connection, uuid: str, now: float) -> Instance:
    connection.execute(
        "INSERT INTO instance (id, uuid, incarnation, alive_at) VALUES (1, ?, 1, ?)", (uuid, now)
    )
    return Instance(uuid, 1, now)


def alive(connection: sqlite3.Connection, now: float) -> None:
    connection.execute("UPDATE instance SET alive_at = ? WHERE id = 1", (now,))


def raise_incarnation(connection: sqlite3.Connection, margin: int) -> int:
    """After a restore: messages of before are superseded, and ids are not given twice."""
    row = connection.execute(
        "UPDATE instance SET incarnation = incarnation + ? WHERE id = 1 RETURNING incarnation", (margin,)
    ).fetchone()
    return int(row[0])


@dataclass(frozen=True, slots=True)
class PolicyVersion:
    version: int
    text: str
    applied_at: float
    applied_by: str
    reason: str


def current_policy(connection: sqlite3.Connection) -> PolicyVersion | None:
    row = connection.execute(
        "SELECT version, text, applied_at, applied_by, reason FROM policies ORDER BY version DESC LIMIT 1"
    ).fetchone()
    return PolicyVersion(*row) if row else None


def save_policy(connection: sqlite3.Connection, *, text: str, now: float, by: str, reason: str) -> int:
    sql = "INSERT INTO policies (text, applied_at, applied_by, reason) VALUES (?, ?, ?, ?) RETURNING version"
    return int(connection.execute(sql, (text, now, by, reason)).fetchone()[0])
