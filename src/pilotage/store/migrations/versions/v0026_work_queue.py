"""Elements, the jobs made of them, agents, and states of sites"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0026"
down_revision = "0025"
branch_labels = None
depends_on = None

number = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    _elements()
    _element_jobs()
    _job_outcomes()
    _agents()
    _site_states()


def _elements() -> None:
    op.create_table(
        "elements",
        sa.Column("id", number, nullable=False),
        sa.Column("request_id", number, nullable=False),
        sa.Column("step", sa.Integer(), nullable=False),
        sa.Column("digest", sa.Text(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("jobs", sa.Integer(), nullable=False),
        sa.Column("events", sa.BigInteger(), nullable=False, server_default="0"),
        sa.Column("files", sa.Integer(), nullable=False, server_default="0"),
        sa.Column("size", sa.BigInteger(), nullable=False, server_default="0"),
        sa.Column("blocks", sa.Text(), nullable=False, server_default="[]"),
        sa.Column("mask", sa.Text(), nullable=False, server_default=""),
        sa.Column("location_set", number, nullable=False),
        sa.Column("created", sa.Float(), nullable=False),
        sa.Column("changed", sa.Float(), nullable=False),
        sa.Column("agent_id", number),
        sa.Column("site", sa.Text(), nullable=False, server_default=""),
        sa.Column("epoch", sa.Integer(), nullable=False, server_default="0"),
        sa.Column("finished_epoch", sa.Integer(), nullable=False, server_default="0"),
        sa.Column("finished_digest", sa.Text(), nullable=False, server_default=""),
        sa.Column("reason", sa.Text(), nullable=False, server_default=""),
        sa.PrimaryKeyConstraint("id"),
        sa.UniqueConstraint("digest"),
        sqlite_autoincrement=True,
    )
    where = sa.text("agent_id IS NOT NULL")
    op.create_index(
        "ix_elements_agent", "elements", ["agent_id", "state"], sqlite_where=where, postgresql_where=where
    )
    where = sa.text("state = 'Available'")
    op.create_index(
        "ix_elements_available",
        "elements",
        ["request_id", "location_set", "id"],
        sqlite_where=where,
        postgresql_where=where,
    )
    op.create_index("ix_elements_request", "elements", ["request_id", "step", "state"])


def _element_jobs() -> None:
    op.create_table(
        "element_jobs",
        sa.Column("id", number, nullable=False),
        sa.Column("element_id", number, nullable=False),
        sa.Column("element_epoch", sa.Integer(), nullable=False),
        sa.Column("digest", sa.Text(), nullable=False),
        sa.Column("mask", sa.Text(), nullable=False),
        sa.Column("request_id", number, nullable=False),
        sa.Column("step", sa.Integer(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("location_set", number, nullable=False),
        sa.Column("site", sa.Text(), nullable=False, server_default=""),
        sa.Column("agent_id", number),
        sa.Column("events", sa.BigInteger(), nullable=False, server_default="0"),
        sa.Column("files", sa.Integer(), nullable=False, server_default="0"),
        sa.Column("size", sa.BigInteger(), nullable=False, server_default="0"),
        sa.Column("made", sa.Float(), nullable=False),
        sa.Column("retries", sa.Integer(), nullable=False, server_default="0"),
        sa.Column("not_before", sa.Float()),
        sa.Column("job_id", number),
        sa.Column("ended", sa.Float()),
        sa.Column("exit_code", sa.Integer()),
        sa.Column("failure", sa.Text(), nullable=False, server_default=""),
        sa.Column("message", sa.Text(), nullable=False, server_default=""),
        sa.PrimaryKeyConstraint("id"),
        sa.UniqueConstraint("element_id", "digest", name="uq_element_jobs_digest"),
        sqlite_autoincrement=True,
    )
    where = sa.text("state = 'cooloff'")
    op.create_index(
        "ix_element_jobs_cooloff", "element_jobs", ["not_before"], sqlite_where=where, postgresql_where=where
    )
    where = sa.text("job_id IS NOT NULL")
    op.create_index(
        "ix_element_jobs_job", "element_jobs", ["job_id"], sqlite_where=where, postgresql_where=where
    )
    where = sa.text("state = 'made'")
    op.create_index(
        "ix_element_jobs_made",
        "element_jobs",
        ["request_id", "step", "location_set", "id"],
        sqlite_where=where,
        postgresql_where=where,
    )
    op.create_index("ix_element_jobs_request", "element_jobs", ["request_id", "state"])


def _job_outcomes() -> None:
    op.create_table(
        "job_outcomes",
        sa.Column("id", number, nullable=False),
        sa.Column("element_job_id", number, nullable=False),
        sa.Column("job_id", number, nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("at", sa.Float(), nullable=False),
        sa.Column("exit_code", sa.Integer()),
        sa.Column("failure", sa.Text(), nullable=False, server_default=""),
        sa.Column("message", sa.Text(), nullable=False, server_default=""),
        sa.PrimaryKeyConstraint("id"),
        sqlite_autoincrement=True,
    )


def _agents() -> None:
    op.create_table(
        "agents",
        sa.Column("id", number, nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("team", sa.Text(), nullable=False),
        sa.Column("owner", sa.Text(), nullable=False),
        sa.Column("nonce", sa.Text(), nullable=False),
        sa.Column("version", sa.Text(), nullable=False, server_default=""),
        sa.Column("host", sa.Text(), nullable=False, server_default=""),
        sa.Column("joined", sa.Float(), nullable=False),
        sa.Column("seen", sa.Float(), nullable=False),
        sa.Column("lease_until", sa.Float(), nullable=False),
        sa.Column("draining", sa.SmallInteger(), nullable=False, server_default="0"),
        sa.Column("ended", sa.Float()),
        sa.Column("pull_number", sa.Integer(), nullable=False, server_default="0"),
        sa.Column("pull_answer", sa.Text(), nullable=False, server_default="[]"),
        sa.PrimaryKeyConstraint("id"),
        sa.UniqueConstraint("name"),
        sqlite_autoincrement=True,
    )


def _site_states() -> None:
    op.create_table(
        "site_states",
        sa.Column("site", sa.Text(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("changed_by", sa.Text(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False, server_default=""),
        sa.Column("since", sa.Float(), nullable=False),
        sa.Column("until", sa.Float()),
        sa.PrimaryKeyConstraint("site"),
    )
