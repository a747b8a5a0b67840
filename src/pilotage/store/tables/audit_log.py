"""Rows of the audit log."""

from __future__ import annotations

from dataclasses import dataclass

from pilotage.store.engine.connection import Connection
from pilotage.store.engine.decisions import ONE_SERVER, overwrites
from pilotage.store.engine.rows import columns, insertion, values

MOST_TEXT = 4000
"""Characters of a text of a row. A longer one ends with a sign that it goes on."""


@dataclass(frozen=True, slots=True)
class AuditRow:
    """One change. It has the fields of `wire.audit.AuditEntry` besides `id`."""

    at: float
    user: str
    group: str
    address: str
    call: str
    target: str
    before: str
    after: str
    reason: str


_COLUMNS = columns(AuditRow, user="user_name", group="grp")


def insert(connection: Connection, row: AuditRow) -> None:
    texts = [_cut(value) if isinstance(value, str) else value for value in values(row)]
    connection.execute(insertion("audit_log", _COLUMNS), texts)


def _cut(text: str) -> str:
    return text if len(text) <= MOST_TEXT else f"{text[: MOST_TEXT - 1]}…"


def page(
    connection: Connection, after: int, limit: int, since: float, user: str
) -> list[tuple[int, AuditRow]]:
    """(id, row) with ids below `after` (0: all), newest first. `user`: only this user; empty: all."""
    conditions, given = ["at >= ?"], [since]
    if after:
        conditions.append("id < ?")
        given.append(after)
    if user:
        conditions.append("user_name = ?")
        given.append(user)  # type: ignore[arg-type]
    sql = f"SELECT id, {_COLUMNS} FROM audit_log WHERE {' AND '.join(conditions)} ORDER BY id DESC LIMIT ?"
    return [(row[0], AuditRow(*row[1:])) for row in connection.execute(sql, [*given, limit])]


@overwrites(ONE_SERVER)
def delete_before(connection: Connection, before: float, most: int) -> int:
    """Delete rows that are older than an instant, at most `most`; returns their number."""
    sql = "SELECT id FROM audit_log WHERE at < ? ORDER BY at LIMIT ?"
    gone = connection.execute(sql, (before, most)).fetchall()
    connection.executemany("DELETE FROM audit_log WHERE id = ?", [(row[0],) for row in gone])
    return len(gone)
