"""Mails that submissions have asked for."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from pilotage.store.schema.base import Id

revision = "0052"
down_revision = "0051"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "mails",
        sa.Column("submission_id", Id, nullable=False),
        sa.Column("event", sa.Text(), nullable=False),
        sa.Column("recipient", sa.Text(), nullable=False),
        sa.Column("tries", sa.Integer(), nullable=False, server_default="0"),
        sa.Column("not_before", sa.Float(), nullable=False, server_default="0"),
        sa.PrimaryKeyConstraint("submission_id", "event"),
    )
