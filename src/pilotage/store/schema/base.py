"""The metadata that all tables belong to, and the type of ids."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from sqlalchemy.ext.compiler import compiles

metadata = sa.MetaData()


POSTGRESQL_ONLY = {"dialect": "postgresql"}
"""The `info` of an index that SQLite does not have."""


class CurrentTransaction(sa.sql.expression.ColumnElement[int]):
    """The default of a column with the id of the transaction that wrote the row; 0 on SQLite, which has none."""

    inherit_cache = True


@compiles(CurrentTransaction, "sqlite")
def _no_transaction(element: CurrentTransaction, compiler: Any, **options: Any) -> str:
    return "0"


@compiles(CurrentTransaction, "postgresql")
def _current_transaction(element: CurrentTransaction, compiler: Any, **options: Any) -> str:
    return "(pg_current_xact_id()::text::bigint)"


def partial_index(name: str, *columns: str, where: str, unique: bool = False) -> sa.Index:
    """An index of the rows that satisfy a condition, in both databases."""
    condition = sa.text(where)
    return sa.Index(name, *columns, unique=unique, sqlite_where=condition, postgresql_where=condition)


Id = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
"""SQLite makes only an INTEGER PRIMARY KEY its row id."""


@compiles(sa.PrimaryKeyConstraint, "postgresql")
def _add_partition_column(key: sa.PrimaryKeyConstraint, compiler: Any, **options: Any) -> str:
    """PostgreSQL requires the partition column in the primary key of a partitioned table."""
    text: str = compiler.visit_primary_key_constraint(key, **options)
    column = None if key.table is None else key.table.info.get("partition_column")
    return text if column is None else f"{text.removesuffix(')')}, {column})"
