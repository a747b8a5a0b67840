"""A database with each of its rows many times: more of everything, for the tests of growth."""

from __future__ import annotations

import contextlib
import sqlite3
from pathlib import Path

import sqlalchemy as sa

from pilotage.store.schema import metadata

SINGLE = frozenset({"instance", "policy_versions", "alembic_version", "event_counters"})
"""Tables whose rows are facts of the server as a whole."""


def multiply(path: Path, times: int, stride: int) -> None:
    """Store `times` - 1 copies of each row. A copy refers to the same other rows, and has a name of its own.

    `stride`: between the ids of two copies, above all ids.
    """
    with contextlib.closing(sqlite3.connect(path)) as connection:
        for table in metadata.sorted_tables:
            if table.name not in SINGLE and (key := _key(table)) is not None:
                _multiply(connection, table, key, times, stride)
        connection.commit()
        connection.execute("ANALYZE")


def _key(table: sa.Table) -> sa.Column[int] | None:
    """The number by which copies of a row are told apart; None: the table has a row for each name."""
    return next((column for column in table.primary_key if isinstance(column.type, sa.Integer)), None)


def _multiply(
    connection: sqlite3.Connection, table: sa.Table, key: sa.Column[int], times: int, stride: int
) -> None:
    unique = {
        column.name
        for column in table.columns
        if isinstance(column.type, sa.Text) and (column.unique or _in_unique(table, column))
    }
    values = []
    for column in table.columns:
        if column.name == key.name:
            values.append(f"{column.name} + copy.n * {stride}")
        elif column.name in unique:
            values.append(f"{column.name} || '-' || copy.n")
        else:
            values.append(f'"{column.name}"')
    names = ", ".join(f'"{column.name}"' for column in table.columns)
    connection.execute(
        f"WITH RECURSIVE copy(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM copy WHERE n < {times - 1})"
        f' INSERT INTO "{table.name}" ({names}) SELECT {", ".join(values)} FROM "{table.name}", copy'
    )


def _in_unique(table: sa.Table, column: sa.Column[str]) -> bool:
    indexes = (index for index in table.indexes if index.unique)
    constraints = (one for one in table.constraints if isinstance(one, sa.UniqueConstraint))
    return any(column.name in index.columns for index in indexes) or any(
        column.name in constraint.columns for constraint in constraints
    )
