"""Archived jobs, the event log, and the progress of retention."""

from __future__ import annotations

import sqlalchemy as sa

from pilotage.store.schema.base import POSTGRESQL_ONLY, CurrentTransaction, Id, metadata, partial_index

# Archived jobs, which ended some time ago: their columns of `jobs`, and the columns that lists show and searches use,
# as of archiving. On PostgreSQL partitioned by the month of the job's end (store/tables/partitions.py).
history = sa.Table(
    "history",
    metadata,
    sa.Column("id", Id, primary_key=True, autoincrement=False),
    sa.Column("submission_id", Id, nullable=False),
    sa.Column("queue_id", Id, nullable=False),
    sa.Column("state", sa.Text, nullable=False),
    sa.Column("user_priority", sa.SmallInteger, nullable=False),
    sa.Column("parameters", sa.Text),
    sa.Column("epoch", sa.Integer, nullable=False),
    sa.Column("attempt", sa.Integer, nullable=False),
    sa.Column("failures", sa.Integer, nullable=False),
    sa.Column("own_failures", sa.Integer, nullable=False),
    sa.Column("finished_epoch", sa.Integer, nullable=False),
    sa.Column("finished_digest", sa.Text, nullable=False),
    sa.Column("reason", sa.Text, nullable=False),
    sa.Column("exit_code", sa.Integer),
    sa.Column("submitted", sa.Float, nullable=False),
    sa.Column("ended", sa.Float, nullable=False),
    sa.Column("last_event", Id, nullable=False),
    sa.Column("owner", sa.Text, nullable=False),
    sa.Column("grp", sa.Text, nullable=False),
    sa.Column("job_name", sa.Text, nullable=False),
    sa.Column("job_group", sa.Text, nullable=False),
    sa.Column("job_type", sa.Text, nullable=False),
    # Of the last attempt.
    sa.Column("started", sa.Float),
    sa.Column("pilot_id", Id),
    sa.Column("site", sa.Text, nullable=False),
    sa.Column("ce", sa.Text, nullable=False),
    sa.Column("hostname", sa.Text, nullable=False),
    sa.Column("has_dependants", sa.SmallInteger, nullable=False, server_default="0"),
    # Lists are ordered by id. A list without a condition on the state reads one state after the other.
    sa.Index("ix_history_owner", "owner", "state", "id"),
    sa.Index("ix_history_grp", "grp", "state", "id"),
    sa.Index("ix_history_state", "state", "id"),
    sa.Index("ix_history_submission", "submission_id", "id"),
    partial_index("ix_history_job_group", "job_group", "id", where="job_group <> ''"),
    partial_index("ix_history_job_name", "job_name", "id", where="job_name <> ''"),
    sa.Index("ix_history_ended", "ended"),
    info={"partition_column": "ended"},
    postgresql_partition_by="RANGE (ended)",
)

# The event log. On PostgreSQL partitioned by month.
events = sa.Table(
    "events",
    metadata,
    sa.Column("id", Id, primary_key=True, autoincrement=False),
    sa.Column("at", sa.Float, nullable=False),
    sa.Column("kind", sa.Text, nullable=False),
    # user:NAME, pilot:ID, server, or "pilots": then `jobs` names the pilot of each job.
    sa.Column("actor", sa.Text, nullable=False),
    sa.Column("old", sa.Text, nullable=False),
    sa.Column("new", sa.Text, nullable=False),
    sa.Column("detail", sa.Text, nullable=False),
    # JSON [[job, epoch, previous event of the job, pilot?] ...]; [first, count] for a new submission; [] for events
    # of pilots and of the policy.
    sa.Column("jobs", sa.Text, nullable=False),
    # The order of commits on PostgreSQL, where several servers write; the order of ids on SQLite.
    sa.Column("xid", sa.BigInteger, nullable=False, server_default=CurrentTransaction()),
    sa.Index("ix_events_xid", "xid", "id", info=POSTGRESQL_ONLY).ddl_if(dialect="postgresql"),
    info={"partition_column": "at"},
    postgresql_partition_by="RANGE (at)",
)

# The progress of the retention of each table.
retention = sa.Table(
    "retention",
    metadata,
    sa.Column("name", sa.Text, primary_key=True),
    # Rows that ended before this time have been handled. NULL: the table has no such time.
    sa.Column("until", sa.Float),
    sa.Column("ran", sa.Float, nullable=False),
    # Rows moved or deleted since the beginning.
    sa.Column("total", sa.BigInteger, nullable=False),
)

# Files to remove: inserted when their rows are deleted, deleted when the files are gone.
removals = sa.Table(
    "removals",
    metadata,
    sa.Column("id", Id, primary_key=True),
    # "jobs": JSON [job ...]; "tries": [[job, highest epoch] ...]; "pilots": [stamp ...]; "inputs": [digest ...].
    sa.Column("kind", sa.Text, nullable=False),
    sa.Column("names", sa.Text, nullable=False),
)
