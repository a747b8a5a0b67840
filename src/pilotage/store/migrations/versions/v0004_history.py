"""Old jobs leave the hot table; how long things are kept"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None


def upgrade() -> None:
    ended = sa.text("ended IS NOT NULL")
    op.create_index("ix_jobs_ended", "jobs", ["ended"], sqlite_where=ended, postgresql_where=ended)
    _history()
    op.create_table(
        "history_counts",
        sa.Column("month", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("owner", sa.Text(), nullable=False),
        sa.Column("grp", sa.Text(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("jobs", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("month", "owner", "grp", "state"),
    )
    op.create_table(
        "retention",
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("until", sa.Float(), nullable=True),
        sa.Column("ran", sa.Float(), nullable=False),
        sa.Column("total", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("name"),
    )
    op.create_table(
        "removals",
        sa.Column("id", _number(), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("names", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("id"),
    )


def _number() -> sa.types.TypeEngine[int]:
    return sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def _history() -> None:
    """Create the empty archive. A duty of the server fills it in slices."""
    op.create_table(
        "history",
        sa.Column("id", _number(), nullable=False),
        sa.Column("submission_id", _number(), nullable=False),
        sa.Column("queue_id", _number(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("user_priority", sa.SmallInteger(), nullable=False),
        sa.Column("parameters", sa.Text(), nullable=True),
        sa.Column("epoch", sa.Integer(), nullable=False),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.Column("failures", sa.Integer(), nullable=False),
        sa.Column("own_failures", sa.Integer(), nullable=False),
        sa.Column("finished_epoch", sa.Integer(), nullable=False),
        sa.Column("finished_digest", sa.Text(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("exit_code", sa.Integer(), nullable=True),
        sa.Column("submitted", sa.Float(), nullable=False),
        sa.Column("ended", sa.Float(), nullable=False),
        sa.Column("last_event", _number(), nullable=False),
        sa.Column("owner", sa.Text(), nullable=False),
        sa.Column("grp", sa.Text(), nullable=False),
        sa.Column("job_name", sa.Text(), nullable=False),
        sa.Column("job_group", sa.Text(), nullable=False),
        sa.Column("job_type", sa.Text(), nullable=False),
        sa.Column("started", sa.Float(), nullable=True),
        sa.Column("pilot_id", _number(), nullable=True),
        sa.Column("site", sa.Text(), nullable=False),
        sa.Column("ce", sa.Text(), nullable=False),
        sa.Column("hostname", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("id"),
    )
    for name, columns in (
        ("owner", ["owner", "state", "id"]),
        ("grp", ["grp", "state", "id"]),
        ("state", ["state", "id"]),
        ("submission", ["submission_id", "id"]),
        ("ended", ["ended"]),
    ):
        op.create_index(f"ix_history_{name}", "history", columns)
    for column in ("job_group", "job_name"):
        named = sa.text(f"{column} <> ''")
        op.create_index(
            f"ix_history_{column}", "history", [column, "id"], sqlite_where=named, postgresql_where=named
        )
