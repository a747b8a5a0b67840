"""The locks of duties as rows: claimed, renewed, released, and checked in each transaction that needs them.

Rules in core/duties.py. A claim never waits: a row that another transaction has locked is somebody else's for now.
"""

from __future__ import annotations

from collections.abc import Iterable

from pilotage.core.duties import Lock, claim_lock
from pilotage.core.errors import Superseded
from pilotage.store.engine.bulk_statements import insert, update
from pilotage.store.engine.connection import Connection, database_time, lock_clause

_NEW = insert("duties", ("name",), conflict=("name",), otherwise="NOTHING")
_SAVED = update(
    "duties",
    ("holder", "epoch", "until", "name"),
    "holder = {holder}, epoch = {epoch}, until = {until}",
    "name = {name}",
)


def create(connection: Connection, names: Iterable[str]) -> None:
    """Insert missing locks. On SQLite, with its only server, all locks are released."""
    connection.execute_bulk(_NEW, [(name,) for name in sorted(names)])
    if connection.dialect == "sqlite":
        connection.execute("UPDATE duties SET holder = '', until = 0")


def claim(
    connection: Connection, names: Iterable[str], who: str, seconds: float, now: float
) -> dict[str, int]:
    """Claim or renew locks for `seconds`; returns the epochs of the locks that `who` then has. Needs a transaction."""
    now = database_time(connection, now)
    wanted = sorted(names)
    marks = ", ".join("?" * len(wanted))
    sql = f"SELECT name, holder, epoch, until FROM duties WHERE name IN ({marks}) ORDER BY name"
    claimed = (
        connection.execute(sql + lock_clause(connection, "UPDATE SKIP LOCKED"), wanted).fetchall()
        if wanted
        else []
    )
    mine = {}
    for name, *values in claimed:
        lock = claim_lock(Lock(*values), who, now, seconds)
        if lock is not None:
            mine[name] = lock
    connection.execute_bulk(
        _SAVED, [(lock.holder, lock.epoch, lock.until, name) for name, lock in mine.items()]
    )
    return {name: lock.epoch for name, lock in mine.items()}


def release(connection: Connection, who: str) -> None:
    """Release all locks of a server that stops or is evicted."""
    connection.execute("UPDATE duties SET holder = '', until = 0 WHERE holder = ?", (who,))


def check(connection: Connection, name: str, epoch: int) -> None:
    """Raise `Superseded` unless the lock has this epoch. The epoch cannot change until the transaction ends."""
    sql = "SELECT epoch FROM duties WHERE name = ?" + lock_clause(connection, "SHARE")
    row = connection.execute(sql, (name,)).fetchone()
    if row is None or row[0] != epoch:
        raise Superseded(f"another server has taken over the duty {name}", hint="this one goes on without it")
