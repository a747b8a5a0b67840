"""Pilots are submitted to batch systems as arrays of equals: a row for each submission"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0011"
down_revision = "0010"
branch_labels = None
depends_on = None


def upgrade() -> None:
    number = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
    op.create_table(
        "pilot_submissions",
        sa.Column("id", number, nullable=False),
        sa.Column("stamp", sa.Text(), nullable=False),
        sa.Column("ce", sa.Text(), nullable=False),
        sa.Column("phase", sa.Text(), nullable=False),
        sa.Column("pilots", sa.Integer(), nullable=False),
        sa.Column("batch_id", sa.Text(), nullable=False, server_default=""),
        sa.Column("epoch", sa.Text(), nullable=False, server_default=""),
        sa.Column("absent_since", sa.Float()),
        sa.Column("reason", sa.Text(), nullable=False, server_default=""),
        sa.Column("submitted", sa.Float(), nullable=False),
        sa.Column("ended", sa.Float()),
        sa.PrimaryKeyConstraint("id"),
        sa.UniqueConstraint("stamp"),
    )
    alive = sa.text("ended IS NULL")
    op.create_index(
        "ix_pilot_submissions_live",
        "pilot_submissions",
        ["ce"],
        sqlite_where=alive,
        postgresql_where=alive,
    )
