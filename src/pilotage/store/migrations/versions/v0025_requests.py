"""Requests, their steps, and their history"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0025"
down_revision = "0024"
branch_labels = None
depends_on = None

number = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    _requests()
    _request_steps()
    _request_events()
    op.add_column("submissions", sa.Column("request_id", number))


def _requests() -> None:
    op.create_table(
        "requests",
        sa.Column("id", number, nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("owner", sa.Text(), nullable=False),
        sa.Column("grp", sa.Text(), nullable=False),
        sa.Column("priority", sa.Integer(), nullable=False),
        sa.Column("team", sa.Text(), nullable=False, server_default=""),
        sa.Column("campaign", sa.Text(), nullable=False, server_default=""),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("specification", sa.Text(), nullable=False),
        sa.Column("sites", sa.Text(), nullable=False),
        sa.Column("banned_sites", sa.Text(), nullable=False, server_default="[]"),
        sa.Column("trust_input", sa.SmallInteger(), nullable=False, server_default="0"),
        sa.Column("trust_pileup", sa.SmallInteger(), nullable=False, server_default="0"),
        sa.Column("open_until", sa.Float()),
        sa.Column("created", sa.Float(), nullable=False),
        sa.Column("changed", sa.Float(), nullable=False),
        sa.Column("version", sa.Integer(), nullable=False, server_default="1"),
        sa.Column("reason", sa.Text(), nullable=False, server_default=""),
        sa.Column("origin_id", number),
        sa.Column("idempotency_key", sa.Text()),
        sa.Column("propagating", sa.SmallInteger(), nullable=False, server_default="0"),
        sa.PrimaryKeyConstraint("id"),
        sa.UniqueConstraint("owner", "idempotency_key", name="uq_requests_key"),
        sqlite_autoincrement=True,
    )
    op.create_index("ix_requests_owner", "requests", ["owner", "id"])
    op.create_index("ix_requests_state", "requests", ["state", "id"])


def _request_steps() -> None:
    op.create_table(
        "request_steps",
        sa.Column("request_id", number, autoincrement=False, nullable=False),
        sa.Column("position", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("type", sa.Text(), nullable=False),
        sa.Column("start_policy", sa.Text(), nullable=False),
        sa.Column("splitting", sa.Text(), nullable=False),
        sa.Column("input_dataset", number),
        sa.Column("after", sa.Integer()),
        sa.Column("further_inputs", sa.Text(), nullable=False, server_default="[]"),
        sa.Column("pileup", sa.Text(), nullable=False, server_default="[]"),
        sa.Column("output_dataset", number),
        sa.Column("taken", sa.BigInteger(), nullable=False, server_default="0"),
        sa.Column("closed", sa.SmallInteger(), nullable=False, server_default="0"),
        sa.Column("ended", sa.SmallInteger(), nullable=False, server_default="0"),
        sa.PrimaryKeyConstraint("request_id", "position"),
    )
    op.create_index("ix_request_steps_input", "request_steps", ["input_dataset"])


def _request_events() -> None:
    op.create_table(
        "request_events",
        sa.Column("id", number, nullable=False),
        sa.Column("request_id", number, nullable=False),
        sa.Column("at", sa.Float(), nullable=False),
        sa.Column("actor", sa.Text(), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("old", sa.Text(), nullable=False, server_default=""),
        sa.Column("new", sa.Text(), nullable=False, server_default=""),
        sa.Column("detail", sa.Text(), nullable=False, server_default=""),
        sa.PrimaryKeyConstraint("id"),
        sqlite_autoincrement=True,
    )
    op.create_index("ix_request_events_request", "request_events", ["request_id", "id"])
