"""The number of jobs by state, so that no query counts rows, and the changes that are not added to it yet.

`month`: of the end of archived jobs, such as 202611 (UTC); 0: jobs of the hot table.
"""

from __future__ import annotations

import sqlalchemy as sa

from pilotage.store.schema.base import Id, metadata

submission_counts = sa.Table(
    "submission_counts",
    metadata,
    sa.Column("submission_id", Id, primary_key=True, autoincrement=False),
    sa.Column("month", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("state", sa.Text, primary_key=True),
    sa.Column("jobs", sa.BigInteger, nullable=False),
)

owner_counts = sa.Table(
    "owner_counts",
    metadata,
    sa.Column("month", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("owner", sa.Text, primary_key=True),
    sa.Column("grp", sa.Text, primary_key=True),
    sa.Column("state", sa.Text, primary_key=True),
    sa.Column("jobs", sa.BigInteger, nullable=False),
)

# Inserted with each transition, and deleted when it is added to the counters: a match then changes no counter's row.
count_changes = sa.Table(
    "count_changes",
    metadata,
    sa.Column("id", Id, primary_key=True),
    sa.Column("month", sa.Integer, nullable=False),
    # The state that jobs left, and the state that they have. Empty: they were not counted, or are not any more.
    sa.Column("old", sa.Text, nullable=False),
    sa.Column("new", sa.Text, nullable=False),
    # JSON {submission: number of jobs}.
    sa.Column("jobs", sa.Text, nullable=False),
)
