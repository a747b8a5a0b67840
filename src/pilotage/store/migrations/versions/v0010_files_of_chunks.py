"""Rows of parameters may name input files: an upload is kept as long as a chunk names it"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0010"
down_revision = "0009"
branch_labels = None
depends_on = None


def upgrade() -> None:
    number = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
    op.create_table(
        "chunk_files",
        sa.Column("submission_id", number, autoincrement=False, nullable=False),
        sa.Column("number", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("digest", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("submission_id", "number", "digest"),
    )
    op.create_index("ix_chunk_files_digest", "chunk_files", ["digest"])
