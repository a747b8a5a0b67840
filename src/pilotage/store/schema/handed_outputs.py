"""Outputs of jobs that are inputs of other jobs."""

from __future__ import annotations

import sqlalchemy as sa

from pilotage.store.schema.base import Id, metadata

# Rows are deleted when all jobs of the submission have ended.
handed_outputs = sa.Table(
    "handed_outputs",
    metadata,
    # The submission whose jobs read the output.
    sa.Column("submission_id", Id, primary_key=True, autoincrement=False),
    sa.Column("number", sa.Integer, primary_key=True, autoincrement=False),
    # The job that writes it, and its name there.
    sa.Column("job_id", Id, nullable=False),
    sa.Column("name", sa.Text, nullable=False),
    # 1: the retention would have deleted the job's outputs.
    sa.Column("expired", sa.SmallInteger, nullable=False, server_default="0"),
    sa.Index("ix_handed_outputs_job", "job_id"),
)
