"""The audit log, mails that submissions have asked for, and outputs of jobs that are inputs of other jobs."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0051"
down_revision = "0050"
branch_labels = None
depends_on = None

Id = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    op.create_table(
        "audit_log",
        sa.Column("id", Id, primary_key=True),
        sa.Column("at", sa.Float, nullable=False),
        sa.Column("user_name", sa.Text, nullable=False),
        sa.Column("grp", sa.Text, nullable=False, server_default=""),
        sa.Column("address", sa.Text, nullable=False, server_default=""),
        sa.Column("call", sa.Text, nullable=False),
        sa.Column("target", sa.Text, nullable=False),
        sa.Column("before", sa.Text, nullable=False, server_default=""),
        sa.Column("after", sa.Text, nullable=False, server_default=""),
        sa.Column("reason", sa.Text, nullable=False, server_default=""),
    )
    op.create_index("ix_audit_log_at", "audit_log", ["at"])
    op.create_index("ix_audit_log_user", "audit_log", ["user_name", "id"])
    op.create_table(
        "mails",
        sa.Column("submission_id", Id, nullable=False),
        sa.Column("event", sa.Text(), nullable=False),
        sa.Column("recipient", sa.Text(), nullable=False),
        sa.Column("tries", sa.Integer(), nullable=False, server_default="0"),
        sa.Column("not_before", sa.Float(), nullable=False, server_default="0"),
        sa.PrimaryKeyConstraint("submission_id", "event"),
    )
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
