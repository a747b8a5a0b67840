"""Several servers on one database: who they are, locks of duties, ids in blocks, change rows, shared limits"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    number = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
    with op.batch_alter_table("instance") as instance:
        instance.add_column(sa.Column("signing_key", sa.Text(), server_default="", nullable=False))
        instance.add_column(sa.Column("sandboxes", sa.Text(), server_default="", nullable=False))
    with op.batch_alter_table("pilots") as pilots:
        pilots.add_column(sa.Column("server", sa.Text(), server_default="", nullable=False))
    with op.batch_alter_table("corrections") as corrections:
        corrections.add_column(sa.Column("found", sa.Text(), server_default="", nullable=False))
    op.create_table(
        "servers",
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("host", sa.Text(), nullable=False),
        sa.Column("url", sa.Text(), nullable=False),
        sa.Column("version", sa.Text(), nullable=False),
        sa.Column("started", sa.Float(), nullable=False),
        sa.Column("alive_at", sa.Float(), nullable=False),
        sa.Column("policy_version", number, nullable=False),
        sa.PrimaryKeyConstraint("name"),
    )
    op.create_table(
        "duties",
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("holder", sa.Text(), server_default="", nullable=False),
        sa.Column("epoch", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("until", sa.Float(), server_default="0", nullable=False),
        sa.PrimaryKeyConstraint("name"),
    )
    op.create_table(
        "counters",
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("last", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("name"),
    )
    op.create_table(
        "changes",
        sa.Column("id", number, nullable=False),
        sa.Column("xid", sa.BigInteger(), nullable=False),
        sa.Column("at", sa.Float(), nullable=False),
        sa.Column("server", sa.Text(), nullable=False),
        sa.Column("payload", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_index("ix_changes_xid", "changes", ["xid"])
    op.create_table(
        "limit_states",
        sa.Column("limit_key", sa.Text(), nullable=False),
        sa.Column("running", sa.Integer(), nullable=True),
        sa.Column("free", sa.Integer(), nullable=False),
        sa.Column("starts", sa.Float(), nullable=False),
        sa.Column("since", sa.Float(), nullable=False),
        sa.PrimaryKeyConstraint("limit_key"),
    )
    op.create_table(
        "limit_blocks",
        sa.Column("limit_key", sa.Text(), nullable=False),
        sa.Column("server", sa.Text(), nullable=False),
        sa.Column("free", sa.Integer(), server_default="0", nullable=False),
        sa.Column("starts", sa.Integer(), server_default="0", nullable=False),
        sa.Column("last_start", sa.Float(), server_default="0", nullable=False),
        sa.Column("wants", sa.SmallInteger(), server_default="0", nullable=False),
        sa.PrimaryKeyConstraint("limit_key", "server"),
    )
