"""Counters of jobs by state, and ranges of the index of jobs for owners and final states"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0045"
down_revision = "0044"
branch_labels = None
depends_on = None

FINAL = ("Done", "Failed", "Killed", "Superseded", "Deleted")
LAST_MONTH = 999912
"""Of ends beyond the calendar."""


def upgrade() -> None:
    _name_owners_and_final_states()
    _create_counters()
    month = _month()
    both = (
        "(SELECT submission_id, 0 AS month, state, count(*) AS jobs FROM jobs GROUP BY submission_id, state"
        f" UNION ALL SELECT submission_id, {month}, state, count(*) FROM history GROUP BY 1, 2, 3) AS c"
    )
    op.execute(
        "INSERT INTO submission_counts (submission_id, month, state, jobs)"
        f" SELECT submission_id, month, state, jobs FROM {both}"
    )
    op.execute(
        "INSERT INTO owner_counts (month, owner, grp, state, jobs) SELECT c.month, s.owner, s.grp, c.state, sum(c.jobs)"
        " FROM submission_counts c JOIN submissions s ON s.id = c.submission_id GROUP BY 1, 2, 3, 4"
    )
    op.drop_table("history_counts")
    for name, column, where in (
        ("ix_submissions_request", "request_id", "request_id IS NOT NULL"),
        ("ix_submissions_job_group", "job_group", "job_group <> ''"),
    ):
        op.create_index(
            name, "submissions", [column], sqlite_where=sa.text(where), postgresql_where=sa.text(where)
        )


def _name_owners_and_final_states() -> None:
    for column in ("owner", "final_state"):
        op.add_column("jobs", sa.Column(column, sa.Text(), nullable=False, server_default=""))
    final = ", ".join(f"'{state}'" for state in FINAL)
    op.execute(
        "UPDATE jobs SET owner = coalesce((SELECT s.owner FROM submissions s WHERE s.id = jobs.submission_id), ''),"
        f" final_state = CASE WHEN state IN ({final}) THEN state ELSE '' END"
    )
    op.drop_index("ix_jobs_submission", table_name="jobs")
    op.create_index("ix_jobs_owner", "jobs", ["owner", "final_state", "id"])


def _create_counters() -> None:
    identity = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
    op.create_table(
        "submission_counts",
        sa.Column("submission_id", identity, autoincrement=False, nullable=False),
        sa.Column("month", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("jobs", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("submission_id", "month", "state"),
    )
    op.create_table(
        "owner_counts",
        sa.Column("month", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("owner", sa.Text(), nullable=False),
        sa.Column("grp", sa.Text(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("jobs", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("month", "owner", "grp", "state"),
    )
    op.create_table(
        "count_changes",
        sa.Column("id", identity, nullable=False),
        sa.Column("month", sa.Integer(), nullable=False),
        sa.Column("old", sa.Text(), nullable=False),
        sa.Column("new", sa.Text(), nullable=False),
        sa.Column("jobs", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("id"),
    )


def _month() -> str:
    """The month of the end of an archived job, such as 202611 (UTC)."""
    if op.get_bind().dialect.name == "sqlite":
        month = "CAST(strftime('%Y%m', ended, 'unixepoch') AS INTEGER)"
    else:
        month = "to_char(to_timestamp(ended) AT TIME ZONE 'UTC', 'YYYYMM')::integer"
    return f"CASE WHEN ended >= -62135596800 AND ended < 253402300800 THEN {month} ELSE {LAST_MONTH} END"
