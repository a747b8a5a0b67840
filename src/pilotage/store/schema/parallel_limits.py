"""Limits on the jobs of a submission that run at once."""

from __future__ import annotations

import sqlalchemy as sa

from pilotage.store.schema.base import Id, metadata, partial_index

parallel_limits = sa.Table(
    "parallel_limits",
    metadata,
    sa.Column("submission_id", Id, primary_key=True, autoincrement=False),
    # The most of its jobs that wait for a pilot or run; 0: no limit any more.
    sa.Column("running", sa.Integer, nullable=False),
    # 0: Blocked jobs may have to move, since a job has ended or the limit has changed.
    sa.Column("settled", sa.SmallInteger, nullable=False, server_default="0"),
    partial_index("ix_parallel_limits_unsettled", "submission_id", where="settled = 0"),
)
