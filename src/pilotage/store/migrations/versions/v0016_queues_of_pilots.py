"""A pilot keeps the task queue that it was submitted for"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0016"
down_revision = "0015"
branch_labels = None
depends_on = None


def upgrade() -> None:
    number = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
    op.add_column("pilots", sa.Column("queue_id", number))
    op.create_index(
        "ix_pilots_queue",
        "pilots",
        ["queue_id", "started", "processors", "memory", "submitted"],
        sqlite_where=sa.text("ended IS NULL"),
        postgresql_where=sa.text("ended IS NULL"),
    )
