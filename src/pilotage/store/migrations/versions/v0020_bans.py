"""Users can be banned from sites; pilots are found by their node and batch id"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0020"
down_revision = "0019"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "bans",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("owner", sa.Text(), nullable=False),
        sa.Column("site", sa.Text(), nullable=False, server_default=""),
        sa.Column("banned_by", sa.Text(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False, server_default=""),
        sa.Column("since", sa.Float(), nullable=False),
        sa.Column("until", sa.Float()),
        sa.Column("ended", sa.Float()),
        sa.Column("ended_by", sa.Text(), nullable=False, server_default=""),
        sa.Column("enforced", sa.Float()),
        sa.PrimaryKeyConstraint("id"),
    )
    in_force = sa.text("ended IS NULL")
    op.create_index(
        "ix_bans_in_force",
        "bans",
        ["owner", "site"],
        unique=True,
        sqlite_where=in_force,
        postgresql_where=in_force,
    )
    op.create_index("ix_pilots_hostname", "pilots", ["hostname", "started"])
    op.create_index("ix_pilots_batch_id", "pilots", ["batch_id"])
