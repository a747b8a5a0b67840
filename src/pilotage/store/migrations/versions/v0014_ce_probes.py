"""The last probe of each CE has a row"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0014"
down_revision = "0013"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "ce_probes",
        sa.Column("ce", sa.Text(), nullable=False),
        sa.Column("number", sa.Integer(), nullable=False),
        sa.Column("requested", sa.Float(), nullable=False),
        sa.Column("requested_by", sa.Text(), nullable=False),
        sa.Column("pilot", sa.BigInteger()),
        sa.Column("checks", sa.Text(), nullable=False, server_default=""),
        sa.PrimaryKeyConstraint("ce"),
    )
