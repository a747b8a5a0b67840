"""Outputs of jobs that are inputs of other jobs."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from pilotage.store.schema.base import Id

revision = "0051"
down_revision = "0050"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "handed_outputs",
        sa.Column("submission_id", Id, nullable=False),
        sa.Column("number", sa.Integer(), nullable=False),
        sa.Column("job_id", Id, nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("expired", sa.SmallInteger(), nullable=False, server_default="0"),
        sa.PrimaryKeyConstraint("submission_id", "number"),
    )
    op.create_index("ix_handed_outputs_job", "handed_outputs", ["job_id"])
