"""Makes the tables of a new database as `store.schema` defines them. Migrations are for databases that exist."""

from __future__ import annotations

import hashlib
import json

import sqlalchemy as sa

from pilotage.core.workqueue.eligibility import ANYWHERE
from pilotage.store.admin.revisions import VERSION_TABLE
from pilotage.store.schema import metadata
from pilotage.store.schema.datasets import location_sets
from pilotage.store.tables.partitions import (
    MONTHS_AHEAD,
    PARTITION_COLUMN,
    month_of,
    month_start,
    months_from,
    next_month,
)

_VERSION = sa.Table(
    VERSION_TABLE,
    sa.MetaData(),
    sa.Column("version_num", sa.String(32), nullable=False),
    sa.PrimaryKeyConstraint("version_num", name="alembic_version_pkc"),
)


def create_tables(connection: sa.Connection, revision: str) -> None:
    """Create all tables, indexes and first rows, and note the revision that they have."""
    metadata.create_all(connection, checkfirst=False)
    if connection.dialect.name == "postgresql":
        _create_partitions(connection)
    # The first row of the table, so that its id is 1.
    sites = json.dumps([ANYWHERE])
    values = {"digest": hashlib.sha256(sites.encode()).hexdigest(), "sites": sites}
    connection.execute(location_sets.insert().values(values))
    _VERSION.create(connection)
    connection.execute(_VERSION.insert().values(version_num=revision))


def _create_partitions(connection: sa.Connection) -> None:
    """The default partition, the partition of this month, and the next ones."""
    now = connection.execute(sa.text("SELECT extract(epoch FROM now())::float8")).scalar_one()
    for table in PARTITION_COLUMN:
        connection.execute(sa.text(f"CREATE TABLE {table}_default PARTITION OF {table} DEFAULT"))
        for month in months_from(month_of(now), MONTHS_AHEAD + 1):
            bounds = f"FROM ({month_start(month)}) TO ({month_start(next_month(month))})"
            connection.execute(
                sa.text(f"CREATE TABLE {table}_{month} PARTITION OF {table} FOR VALUES {bounds}")
            )
