"""Change rows, by which a server informs the others of its committed changes. PostgreSQL only.

A row has the id of its transaction. A follower reads rows up to the first transaction that may still be open
(`pg_snapshot_xmin`). So no row can appear later in the range already read. With sequence numbers, a follower would
miss the row of a transaction that began early and commits late. Followers poll, and read at once after a NOTIFY. Not
every row has one, because commits with NOTIFY wait for one lock of the whole database server.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from pilotage.store.engine.connection import Connection
from pilotage.store.engine.decisions import hint
from pilotage.store.engine.rows import columns

PRUNED_COUNTER = "changes pruned"
"""The counter with the last transaction whose rows are deleted."""

RULES_COUNTER = "rules"
"""The counter that each change of users, tokens, sites and the policy raises."""

CHANNEL = "pilotage_changes"
"""The channel of NOTIFY. Channels are separate for each database."""

MAX_ROWS = 5_000
"""Rows read per statement."""


class ChangeRow(NamedTuple):
    xid: int
    server: str
    payload: str


_CHANGE = columns(ChangeRow)


@dataclass(frozen=True, slots=True)
class ChangeBatch:
    """The result of one read of a follower."""

    registered: bool
    """Whether the follower's server still has its row."""
    pruned: bool
    """Unread rows were deleted: the follower must rebuild its state."""
    position: int
    """The first transaction of the next read."""
    changes: tuple[ChangeRow, ...]
    more: bool = False
    """Further rows exist that cannot be read before an open transaction ends."""
    rules: int = 0
    """The number of changes of rules that are committed. No open transaction holds it up."""


_WRITE = (
    "INSERT INTO changes (xid, at, server, payload) VALUES (pg_current_xact_id()::text::bigint,"
    " coalesce(?::float8, extract(epoch FROM now())::float8), ?, ?)"
)
_WRITE_AND_NOTIFY = f"WITH written AS ({_WRITE}) SELECT pg_notify('{CHANNEL}', ?)"


def write(
    connection: Connection, server: str, payload: str, at: float | None = None, *, hint: bool = False
) -> None:
    """Write a change row, visible to other servers after the commit. `at`: the time; None: the database's clock.

    `hint`: notify the other servers, so that they read at once.
    """
    if hint:
        connection.execute_later(_WRITE_AND_NOTIFY, (at, server, payload, server))
    else:
        connection.execute_later(_WRITE, (at, server, payload))


def oldest_open_transaction(connection: Connection) -> int:
    """The first transaction that may still be open. Later reads see all transactions before it."""
    return int(
        connection.execute("SELECT pg_snapshot_xmin(pg_current_snapshot())::text::bigint").fetchone()[0]
    )


_RULES = "coalesce((SELECT last FROM counters WHERE name = ?), 0)"


@hint("a change after this look counts for the next call")
def rules(connection: Connection) -> int:
    """The number of committed changes of users, tokens, sites and the policy, by all servers."""
    return int(connection.execute(f"SELECT {_RULES}", (RULES_COUNTER,)).fetchone()[0])


def count_rules(connection: Connection) -> None:
    """Count a change of rules. The next one waits for this transaction, so it has to end soon."""
    sql = "INSERT INTO counters (name, last) VALUES (?, 1) ON CONFLICT (name) DO UPDATE SET last = counters.last + 1"
    connection.execute_later(sql, (RULES_COUNTER,))


_READ = (
    "WITH now AS MATERIALIZED (SELECT pg_snapshot_xmin(pg_current_snapshot())::text::bigint AS upto,"
    " EXISTS (SELECT 1 FROM servers WHERE name = ?) AS registered,"
    f" {_RULES} AS rules, coalesce((SELECT last FROM counters WHERE name = ?), 0) AS pruned,"
    " EXISTS (SELECT 1 FROM changes"
    " WHERE server <> ? AND xid >= pg_snapshot_xmin(pg_current_snapshot())::text::bigint) AS more)"
    " SELECT now.upto, now.registered, now.rules, now.pruned, now.more, c.xid, c.server, c.payload FROM now LEFT JOIN"
    " (SELECT id, xid, server, payload FROM changes WHERE xid >= ? AND xid < (SELECT upto FROM now) AND server <> ?"
    " ORDER BY xid, id LIMIT ?) c ON true ORDER BY c.xid, c.id"
)


def read(connection: Connection, since: int, me: str, most: int = MAX_ROWS) -> ChangeBatch:
    """The rows of others from transaction `since` on, as far as all transactions before them have ended.

    Any transaction of the database server holds rows up, also one in another database. Changes of rules must not wait
    for it: they are counted.
    """
    rows = connection.execute(_READ, (me, RULES_COUNTER, PRUNED_COUNTER, me, since, me, most)).fetchall()
    upto, registered, ruled, pruned, more = rows[0][:5]
    changes = tuple(ChangeRow(*row[5:]) for row in rows if row[5] is not None)
    if len(changes) == most:
        # Return whole transactions only: a transaction may have several rows.
        last = changes[-1].xid
        if changes[0].xid == last:
            return read(connection, since, me, most * 2)
        changes, upto = tuple(change for change in changes if change.xid < last), last
        more = True
    return ChangeBatch(bool(registered), pruned >= since, max(since, upto), changes, bool(more), ruled)


@hint("the snapshot says which changes it holds; later ones are read later")
def read_all_since(connection: Connection, position: int, me: str) -> list[ChangeRow]:
    """The rows of other servers from a transaction on, without regard to open transactions."""
    sql = f"SELECT {_CHANGE} FROM changes WHERE xid >= ? AND server <> ? ORDER BY xid, id"
    return [ChangeRow(*row) for row in connection.execute(sql, (position, me))]


def read_with_snapshot(connection: Connection, position: int) -> tuple[TransactionSnapshot, list[ChangeRow]]:
    """The rows of all servers from a transaction on, and the snapshot of the statement."""
    sql = (
        f"SELECT now.seen, c.xid, c.server, c.payload FROM (SELECT {SNAPSHOT_SQL} AS seen) AS now"
        " LEFT JOIN changes c ON c.xid >= ? ORDER BY c.xid, c.id"
    )
    rows = connection.execute(sql, (position,)).fetchall()
    return TransactionSnapshot.parse(rows[0][0]), [ChangeRow(*row[1:]) for row in rows if row[1] is not None]


def prune(connection: Connection, before: float) -> int:
    """Delete rows written before `before`; returns their number."""
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
    """Delete all rows while no server runs, and forget later transactions: a restored database starts at lower ids."""
    connection.execute("DELETE FROM changes")
    connection.execute("DELETE FROM counters WHERE name = ?", (PRUNED_COUNTER,))
    # Events of transactions that have yet to come here would be told by the change feed once more.
    for table in ("events", "request_events"):
        connection.execute(
            f"UPDATE {table} SET xid = 0 WHERE xid >= pg_snapshot_xmax(pg_current_snapshot())::text::bigint"
        )


class TransactionSnapshot(NamedTuple):
    """The transactions visible to a statement: below `xmin`, or below `xmax` and not in `open`."""

    xmin: int
    xmax: int
    open: frozenset[int]

    @classmethod
    def parse(cls, text: str) -> TransactionSnapshot:
        """Parse PostgreSQL's text form, xmin:xmax:open,open."""
        first, end, still = text.split(":")
        return cls(int(first), int(end), frozenset(int(xid) for xid in still.split(",") if xid))

    def saw(self, xid: int) -> bool:
        return xid < self.xmin or (xid < self.xmax and xid not in self.open)


SNAPSHOT_SQL = "pg_current_snapshot()::text"
"""SQL for the snapshot of the statement that contains it."""
