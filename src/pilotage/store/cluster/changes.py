"""Change rows: what one server tells the others of what it has committed. PostgreSQL only.

A row carries the id of its transaction. A follower reads the rows up to the first transaction that may still be open
(`pg_snapshot_xmin`), so that none can appear behind its back; by plain sequence numbers the row of a transaction that
began early and commits late would never be seen. It looks again and again, and sooner when a NOTIFY (`store.hints`)
comes; not every row has one, as commits that notify wait for one lock of the whole database server.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from pilotage.store.engine.connection import Connection

PRUNED_COUNTER = "changes pruned"
"""The counter that says up to which transaction rows have been deleted."""

CHANNEL = "pilotage_changes"
"""Of NOTIFY; each database has its own of a name."""

MAX_ROWS = 5_000
"""Rows read at once."""


class ChangeRow(NamedTuple):
    xid: int
    server: str
    payload: str


@dataclass(frozen=True, slots=True)
class ChangeBatch:
    """What a follower read."""

    registered: bool
    """Whether its server still has its row."""
    pruned: bool
    """Rows that it has not seen are gone: only a full recount helps."""
    position: int
    """From which transaction on it reads the next time."""
    changes: tuple[ChangeRow, ...]
    more: bool = False
    """Others have written what cannot be read before a transaction ends that is still open."""


_WRITE = (
    "INSERT INTO changes (xid, at, server, payload) VALUES (pg_current_xact_id()::text::bigint,"
    " coalesce(?::float8, extract(epoch FROM now())::float8), ?, ?)"
)
_WRITE_AND_NOTIFY = f"WITH written AS ({_WRITE}) SELECT pg_notify('{CHANNEL}', ?)"


def write(
    connection: Connection, server: str, payload: str, at: float | None = None, *, hint: bool = False
) -> None:
    """Tell the others, when this transaction is committed; `at` is now, by the clock of the database.

    With a `hint` they look at once.
    """
    if hint:
        connection.execute_later(_WRITE_AND_NOTIFY, (at, server, payload, server))
    else:
        connection.execute_later(_WRITE, (at, server, payload))


def oldest_open_transaction(connection: Connection) -> int:
    """The first transaction that may still be open: everything before it is seen by what is read after this."""
    return int(
        connection.execute("SELECT pg_snapshot_xmin(pg_current_snapshot())::text::bigint").fetchone()[0]
    )


_READ = (
    "WITH now AS MATERIALIZED (SELECT pg_snapshot_xmin(pg_current_snapshot())::text::bigint AS upto,"
    " EXISTS (SELECT 1 FROM servers WHERE name = ?) AS registered,"
    " coalesce((SELECT last FROM counters WHERE name = ?), 0) AS pruned, EXISTS (SELECT 1 FROM changes"
    " WHERE server <> ? AND xid >= pg_snapshot_xmin(pg_current_snapshot())::text::bigint) AS more)"
    " SELECT now.upto, now.registered, now.pruned, now.more, c.xid, c.server, c.payload FROM now LEFT JOIN"
    " (SELECT id, xid, server, payload FROM changes WHERE xid >= ? AND xid < (SELECT upto FROM now) AND server <> ?"
    " ORDER BY xid, id LIMIT ?) c ON true ORDER BY c.xid, c.id"
)


def read(connection: Connection, since: int, me: str, most: int = MAX_ROWS) -> ChangeBatch:
    """The rows of others from transaction `read_all_since` on, as far as all transactions before them have ended."""
    rows = connection.execute(_READ, (me, PRUNED_COUNTER, me, since, me, most)).fetchall()
    upto, registered, pruned, more = rows[0][:4]
    changes = tuple(ChangeRow(*row[4:]) for row in rows if row[4] is not None)
    if len(changes) == most:
        # Whole transactions only: one may have several rows.
        last = changes[-1].xid
        if changes[0].xid == last:
            return read(connection, since, me, most * 2)
        changes, upto = tuple(change for change in changes if change.xid < last), last
        more = True
    return ChangeBatch(bool(registered), pruned >= since, max(since, upto), changes, bool(more))


def read_all_since(connection: Connection, position: int, me: str) -> list[ChangeRow]:
    """The rows of others from a transaction on, also where earlier ones are still open."""
    sql = "SELECT xid, server, payload FROM changes WHERE xid >= ? AND server <> ? ORDER BY xid, id"
    return [ChangeRow(*row) for row in connection.execute(sql, (position, me))]


def read_with_snapshot(connection: Connection, position: int) -> tuple[TransactionSnapshot, list[ChangeRow]]:
    """The rows of all servers from a transaction on, and which transactions this has seen."""
    sql = (
        f"SELECT now.seen, c.xid, c.server, c.payload FROM (SELECT {SNAPSHOT_SQL} AS seen) AS now"
        " LEFT JOIN changes c ON c.xid >= ? ORDER BY c.xid, c.id"
    )
    rows = connection.execute(sql, (position,)).fetchall()
    return TransactionSnapshot.parse(rows[0][0]), [ChangeRow(*row[1:]) for row in rows if row[1] is not None]


def prune(connection: Connection, before: float) -> int:
    """Delete the rows written before that instant; how many."""
    sql = (
        "WITH gone AS (DELETE FROM changes WHERE at < ? AND xid < pg_snapshot_xmin(pg_current_snapshot())::text::bigint"
        " RETURNING xid) SELECT count(*), max(xid) FROM gone"
    )
    count, last = connection.execute(sql, (before,)).fetchone()
    if count:
        connection.execute(
            "INSERT INTO counters (name, last) VALUES (?, ?)"
            " ON CONFLICT (name) DO UPDATE SET last = greatest(counters.last, excluded.last)",
            (PRUNED_COUNTER, last),
        )
    return int(count)


def delete_all(connection: Connection) -> None:
    """No server is there to read them. Transaction ids begin again where a database is restored elsewhere."""
    connection.execute("DELETE FROM changes")
    connection.execute("DELETE FROM counters WHERE name = ?", (PRUNED_COUNTER,))


class TransactionSnapshot(NamedTuple):
    """What a statement has seen: transactions below `xmin` and those from there to `xmax` that are not in `open`."""

    xmin: int
    xmax: int
    open: frozenset[int]

    @classmethod
    def parse(cls, text: str) -> TransactionSnapshot:
        """PostgreSQL's own writing: xmin:xmax:open,open."""
        first, end, still = text.split(":")
        return cls(int(first), int(end), frozenset(int(xid) for xid in still.split(",") if xid))

    def saw(self, xid: int) -> bool:
        return xid < self.xmin or (xid < self.xmax and xid not in self.open)


SNAPSHOT_SQL = "pg_current_snapshot()::text"
"""In a statement beside what is read: how far that goes."""
