"""Batch jobs of each CE that have outlived their pilots, and when its batch system last gave no answer."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0056"
down_revision = "0055"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("ces", sa.Column("orphans", sa.Integer, nullable=False, server_default="0"))
    op.add_column("ces", sa.Column("orphans_since", sa.Float))
    op.add_column("ces", sa.Column("unreachable_at", sa.Float))
