"""Blocks whose location has changed, removed data sets, and an index of open blocks"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0028"
down_revision = "0027"
branch_labels = None
depends_on = None

number = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    op.create_table(
        "moved_blocks",
        sa.Column("block_id", number, autoincrement=False, nullable=False),
        sa.Column("number", sa.Integer(), nullable=False),
        sa.Column("moved", sa.Float(), nullable=False),
        sa.PrimaryKeyConstraint("block_id"),
    )
    op.add_column("datasets", sa.Column("removed", sa.Float()))
    open_blocks = sa.text("open = 1")
    op.create_index(
        "ix_blocks_open", "blocks", ["dataset_id", "id"],
        sqlite_where=open_blocks, postgresql_where=open_blocks,
    )  # fmt: skip
