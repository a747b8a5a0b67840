"""Months as partitions of what only grows: history by the end of its jobs, events by their instant. PostgreSQL only.

A month is one of UTC, as in `history_counts`. Months are made ahead; what belongs to none that was made goes into the
default partition, so that nothing is ever refused. A month that is too old as a whole goes as a whole.

The key of a partitioned table has the instant in it, so that the database alone does not see to it that an id is there
once. Of an event `store.numbers` does, which gives no id twice. A job changes over between `jobs`, where its id is the
key, and history in one transaction that holds its row: who comes second finds no row to take.

Locks that hold up others are waited for no longer than `PATIENCE`; who cannot have them tries again later. On SQLite
there is nothing to do here.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Literal

from pilotage.store.engine.connection import Connection, has_table

Divided = Literal["history", "events"]

DIVIDED_BY: dict[Divided, str] = {"history": "ended", "events": "at"}
"""The column that says which month a row belongs to."""

AHEAD = 3
"""So many months after this one are there before they begin."""

PATIENCE = "50ms"
"""While a lock is waited for, others wait behind."""

MOST = 2000
"""So many rows are taken out of the default partition for a month; where it has more of them, they stay there."""

NAMES = r"^(history|events)_([0-9]{6}|default)$"
"""Of partitions, and of months that were taken out of their table."""


def month_of(at: float) -> int:
    """Such as 202611, in UTC.

    >>> month_of(0.0)
    197001
    """
    day = datetime.fromtimestamp(at, UTC)
    return day.year * 100 + day.month


def following(month: int) -> int:
    """The month after.

    >>> following(202611), following(202612)
    (202612, 202701)
    """
    return month + 1 if month % 100 < 12 else month + 89


def begin_of(month: int) -> float:
    """Its first instant.

    >>> begin_of(197002)
    2678400.0
    """
    return datetime(month // 100, month % 100, 1, tzinfo=UTC).timestamp()


def end_of_month(at: float) -> float:
    """Of the month of an instant; of one that no calendar has there is none.

    >>> end_of_month(0.0), end_of_month(1e15)
    (2678400.0, inf)
    """
    try:
        return begin_of(following(month_of(at)))
    except (ValueError, OverflowError):
        return math.inf


def is_partition(name: str) -> bool:
    """Whether a table of this name is a part of one of the schema.

    >>> is_partition("events_202611"), is_partition("history_default"), is_partition("history_counts")
    (True, True, False)
    """
    return re.search(NAMES, name) is not None


def belongs_to_the_schema(_: object, name: str | None, kind: str, reflected: bool, meant: object) -> bool:
    """For Alembic's comparisons of a database with the schema: partitions are none of its tables."""
    return not (kind == "table" and reflected and meant is None and name is not None and is_partition(name))


def months(connection: Connection, table: Divided) -> list[int]:
    """That are partitions of it, the oldest first."""
    return _named(connection, table, "c.relispartition")


def taken_out(connection: Connection, table: Divided) -> list[int]:
    """Months that are no partitions any more, and not dropped yet."""
    return _named(connection, table, "NOT c.relispartition")


def _named(connection: Connection, table: Divided, what: str) -> list[int]:
    if connection.dialect == "sqlite":
        return []
    sql = (
        f"SELECT right(c.relname, 6)::bigint FROM pg_class c WHERE c.relname ~ ? AND c.relkind = 'r' AND {what}"
        " AND pg_table_is_visible(c.oid) ORDER BY 1"
    )
    return [row[0] for row in connection.execute(sql, (f"^{table}_[0-9]{{6}}$",))]


def missing(connection: Connection, table: Divided, now: float) -> list[int]:
    """Months to be made, from the one of `now` on."""
    if connection.dialect == "sqlite":
        return []
    there = {*months(connection, table), *taken_out(connection, table)}
    return [month for month in _from(month_of(now), AHEAD + 1) if month not in there]


def _from(month: int, count: int) -> Iterator[int]:
    for _ in range(count):
        yield month
        month = following(month)


def make(connection: Connection, table: Divided, month: int) -> bool:
    """In a transaction of its own: make a month, and take its rows out of the default partition.

    The table may be read and written meanwhile, but for the default partition. False: that has too many of its rows,
    or the month is there. Raises `Overloaded` where locks cannot be had now.
    """
    default, name = f"{table}_default", f"{table}_{month}"
    _lock(connection, f"{table} IN SHARE UPDATE EXCLUSIVE", f"{default} IN ACCESS EXCLUSIVE")
    begin, end = begin_of(month), begin_of(following(month))
    belongs = f"{DIVIDED_BY[table]} >= {begin} AND {DIVIDED_BY[table]} < {end}"
    sql = f"SELECT count(*) FROM (SELECT 1 FROM {default} WHERE {belongs} LIMIT {MOST + 1}) AS strays"
    [strays] = connection.execute(sql).fetchone()
    if strays > MOST or has_table(connection, name):
        return False
    connection.execute(f"CREATE TABLE {name} (LIKE {table} INCLUDING DEFAULTS INCLUDING INDEXES)")
    if strays:
        connection.execute(
            f"WITH strays AS (DELETE FROM {default} WHERE {belongs} RETURNING *)"
            f" INSERT INTO {name} SELECT * FROM strays"
        )
    connection.execute(f"ALTER TABLE {table} ATTACH PARTITION {name} FOR VALUES FROM ({begin}) TO ({end})")
    return True


def older(connection: Connection, table: Divided, before: float) -> list[int]:
    """Months of which everything was before that instant, the oldest first."""
    return [month for month in months(connection, table) if begin_of(following(month)) <= before]


def take_out(connection: Connection, table: Divided, month: int) -> None:
    """In a transaction of its own: make a table by itself of a month. Nobody else writes into `table` until its end.

    From the commit on nobody finds the rows any more who does not name that table. Raises `Overloaded` where locks
    cannot be had now.
    """
    name = f"{table}_{month}"
    _lock(connection, *(f"{part} IN ACCESS EXCLUSIVE" for part in (table, name, f"{table}_default")))
    connection.execute(f"ALTER TABLE {table} DETACH PARTITION {name}")


def estimate(connection: Connection, table: Divided, month: int) -> int:
    """About how many rows a month has, as of when the database last looked."""
    sql = "SELECT greatest(reltuples, 0)::bigint FROM pg_class WHERE oid = ?::regclass"
    return int(connection.execute(sql, (f"{table}_{month}",)).fetchone()[0])


def drop(connection: Connection, table: Divided, month: int) -> None:
    """One that was taken out."""
    connection.execute(f"DROP TABLE {table}_{month}")


def _lock(connection: Connection, *locks: str) -> None:
    """Until the transaction ends; each is waited for no longer than `PATIENCE`."""
    connection.execute(f"SET LOCAL lock_timeout = '{PATIENCE}'")
    for lock in locks:
        connection.execute(f"LOCK TABLE ONLY {lock} MODE")
