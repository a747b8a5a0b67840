"""Fair shares: the owner of each attempt, the cache of use, corrections, wait reasons of queues"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    number = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
    with op.batch_alter_table("instance") as instance:
        instance.add_column(sa.Column("use_as_of", sa.Float(), nullable=True))
    with op.batch_alter_table("attempts") as attempts:
        attempts.add_column(sa.Column("owner", sa.Text(), server_default="", nullable=False))
        attempts.add_column(sa.Column("grp", sa.Text(), server_default="", nullable=False))
        attempts.add_column(sa.Column("site", sa.Text(), server_default="", nullable=False))
        attempts.add_column(sa.Column("cpu_power", sa.Float(), server_default="1", nullable=False))
        attempts.create_index("ix_attempts_ended", ["ended"])
    # The power of a CE stands in the policy of the day, which is not read here: tries of before count as 1.
    op.execute(
        "UPDATE attempts SET"
        " owner = coalesce((SELECT s.owner FROM jobs j JOIN submissions s ON s.id = j.submission_id"
        " WHERE j.id = attempts.job_id), ''),"
        " grp = coalesce((SELECT s.grp FROM jobs j JOIN submissions s ON s.id = j.submission_id"
        " WHERE j.id = attempts.job_id), ''),"
        " site = coalesce((SELECT site FROM pilots WHERE id = attempts.pilot_id), '')"
    )
    op.create_table(
        "outages",
        sa.Column("id", number, nullable=False),
        sa.Column("down", sa.Float(), nullable=False),
        sa.Column("up", sa.Float(), nullable=False),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_table(
        "use_entities",
        sa.Column("place", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("owner", sa.Text(), nullable=False),
        sa.Column("grp", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("place"),
    )
    op.create_table(
        "use_buckets",
        sa.Column("span", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("start", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("places", sa.LargeBinary(), nullable=False),
        sa.Column("jobs", sa.LargeBinary(), nullable=False),
        sa.Column("cores", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("span", "start"),
    )
    op.create_table(
        "corrections",
        sa.Column("id", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("at", sa.Float(), nullable=False),
        sa.Column("memory", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_table(
        "queue_reasons",
        sa.Column("id", number, nullable=False),
        sa.Column("queue_id", number, nullable=False),
        sa.Column("since", sa.Float(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("detail", sa.Text(), server_default="", nullable=False),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_index("ix_queue_reasons_queue", "queue_reasons", ["queue_id", "id"])
