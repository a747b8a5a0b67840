"""Requests can be paused, and agents tell how far their drain is"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0046"
down_revision = "0045"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("requests", sa.Column("paused", sa.SmallInteger(), nullable=False, server_default="0"))
    op.add_column("agents", sa.Column("drain_since", sa.Float()))
    op.add_column("agents", sa.Column("drain_jobs", sa.Integer(), nullable=False, server_default="0"))
