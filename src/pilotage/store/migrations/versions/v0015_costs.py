"""Core-seconds of pilots by CE, hour, owner and group; when a pilot had its cores, and its wall time"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0015"
down_revision = "0014"
branch_labels = None
depends_on = None

UNBOOKED = "cores_until IS NOT NULL AND (booked_until IS NULL OR booked_until < cores_until)"


def upgrade() -> None:
    op.add_column("pilots", sa.Column("wall", sa.Float(), nullable=False, server_default="0"))
    for column in ("cores_from", "cores_until", "silent_from", "silent_until", "booked_until"):
        op.add_column("pilots", sa.Column(column, sa.Float()))
    # Pilots that have ended stay out of the costs: their last signs of life were not stored.
    op.execute("UPDATE pilots SET cores_from = started WHERE ended IS NULL")
    op.create_index(
        "ix_pilots_unbooked",
        "pilots",
        ["id"],
        sqlite_where=sa.text(UNBOOKED),
        postgresql_where=sa.text(UNBOOKED),
    )
    op.create_table(
        "costs",
        sa.Column("ce", sa.Text(), nullable=False),
        sa.Column("hour", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("owner", sa.Text(), nullable=False),
        sa.Column("grp", sa.Text(), nullable=False),
        *(sa.Column(name, sa.Float(), nullable=False) for name in ("payload", "startup", "idle", "lost")),
        sa.PrimaryKeyConstraint("ce", "hour", "owner", "grp"),
    )
    op.create_index("ix_costs_hour", "costs", ["hour"])
