"""Pilots keep the end of their output; indexes find them by secret, by lease, and after a kill"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0013"
down_revision = "0012"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("pilots", sa.Column("log", sa.Text(), nullable=False, server_default=""))
    op.create_index("ix_pilots_secret", "pilots", ["secret_hash", "idx"])
    for name, column, condition in (
        ("ix_pilots_lease", "lease_until", "ended IS NULL"),
        ("ix_pilots_killed", "ce", "ended IS NULL AND leave = 'kill'"),
    ):
        where = sa.text(condition)
        op.create_index(name, "pilots", [column], sqlite_where=where, postgresql_where=where)
