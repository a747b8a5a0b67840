"""CEs have a row each: the pause of their director, its reason, their failures, and whether they are disabled"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0012"
down_revision = "0011"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "ces",
        sa.Column("ce", sa.Text(), nullable=False),
        sa.Column("section", sa.Text(), nullable=False, server_default=""),
        sa.Column("trouble", sa.Text(), nullable=False, server_default=""),
        sa.Column("unreachable", sa.Text(), nullable=False, server_default=""),
        sa.Column("failures", sa.Integer(), nullable=False, server_default="0"),
        sa.Column("not_before", sa.Float(), nullable=False, server_default="0"),
        sa.Column("epoch", sa.Text(), nullable=False, server_default=""),
        sa.Column("listed", sa.Float()),
        sa.Column("alike", sa.Integer(), nullable=False, server_default="0"),
        sa.Column("failure", sa.Text(), nullable=False, server_default=""),
        sa.Column("state", sa.Text(), nullable=False, server_default=""),
        sa.Column("state_by", sa.Text(), nullable=False, server_default=""),
        sa.Column("state_reason", sa.Text(), nullable=False, server_default=""),
        sa.Column("state_since", sa.Float()),
        sa.PrimaryKeyConstraint("ce"),
    )
