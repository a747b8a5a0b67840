"""The metadata that all tables belong to, and the type of ids."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from sqlalchemy.ext.compiler import compiles

metadata = sa.MetaData()

Id = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
"""SQLite makes only an INTEGER PRIMARY KEY its row id."""


@compiles(sa.PrimaryKeyConstraint, "postgresql")
def _add_partition_column(key: sa.PrimaryKeyConstraint, compiler: Any, **options: Any) -> str:
    """PostgreSQL requires the partition column in the primary key of a partitioned table."""
    text: str = compiler.visit_primary_key_constraint(key, **options)
    column = None if key.table is None else key.table.info.get("partition_column")
    return text if column is None else f"{text.removesuffix(')')}, {column})"
