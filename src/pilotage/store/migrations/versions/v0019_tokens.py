"""Tokens that administrators have made can be listed and revoked, and the key that signs tokens can be rotated"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0019"
down_revision = "0018"
branch_labels = None
depends_on = None


def upgrade() -> None:
    number = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
    op.create_table(
        "tokens",
        sa.Column("id", number, autoincrement=False, nullable=False),
        sa.Column("owner", sa.Text(), nullable=False),
        sa.Column("grp", sa.Text(), nullable=False),
        sa.Column("issued", sa.Float(), nullable=False),
        sa.Column("expires", sa.Float(), nullable=False),
        sa.Column("issued_by", sa.Text(), nullable=False),
        sa.Column("revoked", sa.Float()),
        sa.Column("revoked_by", sa.Text(), nullable=False, server_default=""),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_table(
        "token_cutoffs",
        sa.Column("owner", sa.Text(), nullable=False),
        sa.Column("issued_until", sa.Float(), nullable=False),
        sa.PrimaryKeyConstraint("owner"),
    )
    op.create_table(
        "signing_keys",
        sa.Column("number", number, autoincrement=False, nullable=False),
        sa.Column("salt", sa.Text(), nullable=False),
        sa.Column("created", sa.Float(), nullable=False),
        sa.Column("accepted_until", sa.Float()),
        sa.PrimaryKeyConstraint("number"),
    )
