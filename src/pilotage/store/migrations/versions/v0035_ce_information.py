"""The last facts about each CE and its hosts have a row"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0035"
down_revision = "0034"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "ce_information",
        sa.Column("ce", sa.Text(), nullable=False),
        sa.Column("updated", sa.Float(), nullable=False, server_default="0"),
        sa.Column("expiry", sa.Float(), nullable=False, server_default="0"),
        sa.Column("attributes", sa.Text(), nullable=False, server_default="{}"),
        sa.Column("hosts", sa.Text(), nullable=False, server_default="[]"),
        sa.Column("homogeneous", sa.Integer(), nullable=False, server_default="0"),
        sa.Column("problem", sa.Text(), nullable=False, server_default=""),
        sa.Column("problem_since", sa.Float()),
        sa.PrimaryKeyConstraint("ce"),
    )
