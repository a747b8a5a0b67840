"""Waiting jobs and shares over time: sums by interval, of which core/intervals.py has the lengths.

SQLite keeps the rows of an interval together, in the index of the key: a page reads thousands of them.
"""

from __future__ import annotations

import sqlalchemy as sa

from pilotage.store.schema.base import metadata

# The intervals of which something is recorded.
recorded_intervals = sa.Table(
    "recorded_intervals",
    metadata,
    # The length in seconds, and the start.
    sa.Column("span", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("start", sa.BigInteger, primary_key=True, autoincrement=False),
    # For how long something was recorded, and the last instant of it.
    sa.Column("seconds", sa.Float, nullable=False),
    sa.Column("until", sa.Float, nullable=False),
)

waiting_intervals = sa.Table(
    "waiting_intervals",
    metadata,
    sa.Column("span", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("start", sa.BigInteger, primary_key=True, autoincrement=False),
    # Empty: all owners of the group, also owners without a row.
    sa.Column("owner", sa.Text, primary_key=True),
    sa.Column("grp", sa.Text, primary_key=True),
    # One of core/queues/wait_reason.py; empty: not known yet.
    sa.Column("reason", sa.Text, primary_key=True),
    # Waiting jobs times seconds.
    sa.Column("job_seconds", sa.Float, nullable=False),
    sqlite_with_rowid=False,
)

share_intervals = sa.Table(
    "share_intervals",
    metadata,
    sa.Column("span", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("start", sa.BigInteger, primary_key=True, autoincrement=False),
    # The group whose owners are compared, and the owner. Groups among each other: empty, and the group.
    sa.Column("within", sa.Text, primary_key=True),
    sa.Column("name", sa.Text, primary_key=True),
    # For how long it was counted, and the sums of its values times seconds.
    sa.Column("seconds", sa.Float, nullable=False),
    sa.Column("entitled", sa.Float, nullable=False),
    sa.Column("used", sa.Float, nullable=False),
    sa.Column("correction", sa.Float, nullable=False),
    sqlite_with_rowid=False,
)
