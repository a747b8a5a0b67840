"""Monthly partitions of `history` (by the end of the job) and `events` (by their time). PostgreSQL only.

Months are in UTC, as in `submission_counts`, and are created ahead. Rows of a month without a partition go into the
default partition, so no insert is ever refused. An expired month is dropped as a whole.

PostgreSQL requires the partition column in the primary key, so the database does not enforce unique ids. Event ids are
unique because `cluster.id_allocator` gives none twice. A job moves between `jobs` and `history` in one transaction that
locks its row in `jobs`, where the id is the key; a second mover finds no row.

Waiting for a lock that blocks others ends after `LOCK_TIMEOUT`; the caller tries again later. On SQLite these
functions do nothing.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any, Literal

from pilotage.store.engine.connection import Connection, has_table

PartitionedTable = Literal["history", "events"]

PARTITION_COLUMN: dict[PartitionedTable, str] = {"history": "ended", "events": "at"}
"""The column that decides the month of a row."""

MONTHS_AHEAD = 3
"""Months created ahead, after the current one."""

LOCK_TIMEOUT = "50ms"
"""The maximum wait for a lock: other sessions queue behind a waiting one."""

MAX_MOVED_ROWS = 2000
"""Rows moved at most from the default partition to a new month; with more rows, the month is not created."""

PARTITION_NAMES = r"^(history|events)_([0-9]{6}|default)$"
"""Names of partitions and of detached months."""


def month_of(at: float) -> int:
    """Such as 202611, in UTC.

    >>> month_of(0.0)
    197001
    """
    day = datetime.fromtimestamp(at, UTC)
    return day.year * 100 + day.month


def month_sql(connection: Connection, column: str) -> str:
    """`month_of` of a column, as SQL."""
    if connection.dialect == "sqlite":
        return f"CAST(strftime('%Y%m', {column}, 'unixepoch') AS INTEGER)"
    return f"to_char(to_timestamp({column}) AT TIME ZONE 'UTC', 'YYYYMM')::integer"


def next_month(month: int) -> int:
    """The following month.

    >>> next_month(202611), next_month(202612)
    (202612, 202701)
    """
    return month + 1 if month % 100 < 12 else month + 89


def month_start(month: int) -> float:
    """The first second of a month.

    >>> month_start(197002)
    2678400.0
    """
    return datetime(month // 100, month % 100, 1, tzinfo=UTC).timestamp()


def month_end(at: float) -> float:
    """The end of the month of a time; infinity for times beyond the calendar.

    >>> month_end(0.0), month_end(1e15)
    (2678400.0, inf)
    """
    try:
        return month_start(next_month(month_of(at)))
    except (ValueError, OverflowError):
        return math.inf


def is_partition(name: str) -> bool:
    """Whether a table of this name is a partition or a detached month.

    >>> is_partition("events_202611"), is_partition("history_default"), is_partition("history_of")
    (True, True, False)
    """
    return re.search(PARTITION_NAMES, name) is not None


def is_schema_object(found: Any, name: str | None, kind: str, reflected: bool, meant: object) -> bool:
    """Alembic's `include_object`: ignore partitions, and indexes that only one kind of database has."""
    if kind == "index":
        return reflected or meant is not None or "dialect" not in found.info
    return not (kind == "table" and reflected and meant is None and name is not None and is_partition(name))


def months(connection: Connection, table: PartitionedTable) -> list[int]:
    """The months that are partitions of `table`, oldest first."""
    return _month_tables(connection, table, "c.relispartition")


def detached_months(connection: Connection, table: PartitionedTable) -> list[int]:
    """Months that are detached and not dropped yet, oldest first."""
    return _month_tables(connection, table, "NOT c.relispartition")


def _month_tables(connection: Connection, table: PartitionedTable, what: str) -> list[int]:
    if connection.dialect == "sqlite":
        return []
    sql = (
        f"SELECT right(c.relname, 6)::bigint FROM pg_class c WHERE c.relname ~ ? AND c.relkind = 'r' AND {what}"
        " AND pg_table_is_visible(c.oid) ORDER BY 1"
    )
    return [row[0] for row in connection.execute(sql, (f"^{table}_[0-9]{{6}}$",))]


def missing_months(connection: Connection, table: PartitionedTable, now: float) -> list[int]:
    """Months without a table, from the month of `now` on."""
    if connection.dialect == "sqlite":
        return []
    there = {*months(connection, table), *detached_months(connection, table)}
    return [month for month in months_from(month_of(now), MONTHS_AHEAD + 1) if month not in there]


def months_from(month: int, count: int) -> Iterator[int]:
    """`count` months, `month` first."""
    for _ in range(count):
        yield month
        month = next_month(month)


def create(connection: Connection, table: PartitionedTable, month: int) -> bool:
    """Create the partition of a month, and move its rows from the default partition. Needs its own transaction.

    Meanwhile the table can be read and written, except for the default partition. False: the default partition has too
    many rows of the month, or the month exists. Raises `Overloaded` if a lock is not available.
    """
    default, name = f"{table}_default", f"{table}_{month}"
    _lock_tables(connection, f"{table} IN SHARE UPDATE EXCLUSIVE", f"{default} IN ACCESS EXCLUSIVE")
    begin, end = month_start(month), month_start(next_month(month))
    belongs = f"{PARTITION_COLUMN[table]} >= {begin} AND {PARTITION_COLUMN[table]} < {end}"
    sql = (
        f"SELECT count(*) FROM (SELECT 1 FROM {default} WHERE {belongs} LIMIT {MAX_MOVED_ROWS + 1}) AS strays"
    )
    [strays] = connection.execute(sql).fetchone()
    if strays > MAX_MOVED_ROWS or has_table(connection, name):
        return False
    connection.execute(f"CREATE TABLE {name} (LIKE {table} INCLUDING DEFAULTS INCLUDING INDEXES)")
    if strays:
        connection.execute(
            f"WITH strays AS (DELETE FROM {default} WHERE {belongs} RETURNING *)"
            f" INSERT INTO {name} SELECT * FROM strays"
        )
    connection.execute(f"ALTER TABLE {table} ATTACH PARTITION {name} FOR VALUES FROM ({begin}) TO ({end})")
    return True


def expired_months(connection: Connection, table: PartitionedTable, before: float) -> list[int]:
    """Months that ended before `before`, oldest first."""
    return [month for month in months(connection, table) if month_start(next_month(month)) <= before]


def detach(connection: Connection, table: PartitionedTable, month: int) -> None:
    """Detach the partition of a month, which becomes a separate table. Needs its own transaction.

    Other writers of `table` wait until the transaction ends. Raises `Overloaded` if a lock is not available.
    """
    name = f"{table}_{month}"
    _lock_tables(connection, *(f"{part} IN ACCESS EXCLUSIVE" for part in (table, name, f"{table}_default")))
    connection.execute(f"ALTER TABLE {table} DETACH PARTITION {name}")


def estimated_rows(connection: Connection, table: PartitionedTable, month: int) -> int:
    """The approximate number of rows of a month, from the statistics of the database."""
    sql = "SELECT greatest(reltuples, 0)::bigint FROM pg_class WHERE oid = ?::regclass"
    return int(connection.execute(sql, (f"{table}_{month}",)).fetchone()[0])


def drop(connection: Connection, table: PartitionedTable, month: int) -> None:
    """Drop a detached month."""
    connection.execute(f"DROP TABLE {table}_{month}")


def _lock_tables(connection: Connection, *locks: str) -> None:
    """Lock tables until the transaction ends, waiting at most `LOCK_TIMEOUT` for each."""
    connection.execute(f"SET LOCAL lock_timeout = '{LOCK_TIMEOUT}'")
    for lock in locks:
        connection.execute(f"LOCK TABLE ONLY {lock} MODE")
