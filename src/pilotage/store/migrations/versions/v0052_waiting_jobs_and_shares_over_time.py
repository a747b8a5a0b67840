"""Waiting jobs and shares over time."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0052"
down_revision = "0051"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "recorded_intervals",
        *_interval(),
        sa.Column("seconds", sa.Float, nullable=False),
        sa.Column("until", sa.Float, nullable=False),
        sa.PrimaryKeyConstraint("span", "start"),
    )
    op.create_table(
        "waiting_intervals",
        *_interval(),
        sa.Column("owner", sa.Text, nullable=False),
        sa.Column("grp", sa.Text, nullable=False),
        sa.Column("reason", sa.Text, nullable=False),
        sa.Column("job_seconds", sa.Float, nullable=False),
        sa.PrimaryKeyConstraint("span", "start", "owner", "grp", "reason"),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "share_intervals",
        *_interval(),
        sa.Column("within", sa.Text, nullable=False),
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("seconds", sa.Float, nullable=False),
        sa.Column("entitled", sa.Float, nullable=False),
        sa.Column("used", sa.Float, nullable=False),
        sa.Column("correction", sa.Float, nullable=False),
        sa.PrimaryKeyConstraint("span", "start", "within", "name"),
        sqlite_with_rowid=False,
    )


def _interval() -> list[sa.Column[int]]:
    return [
        sa.Column("span", sa.Integer, nullable=False),
        sa.Column("start", sa.BigInteger, nullable=False),
    ]
