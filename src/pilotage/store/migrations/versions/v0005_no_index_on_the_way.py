"""A match changes no index: a pilot's jobs are listed in its row, and the index of queues has no state"""

from __future__ import annotations

import json

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None


def upgrade() -> None:
    with op.batch_alter_table("pilots") as pilots:
        pilots.add_column(sa.Column("taken_at", sa.Float()))
        pilots.add_column(sa.Column("jobs", sa.Text(), server_default="[]", nullable=False))
    _note_what_pilots_have()
    op.drop_index("ix_jobs_waiting", table_name="jobs")
    op.drop_index("ix_jobs_pilot", table_name="jobs")
    op.create_index("ix_jobs_queue", "jobs", ["queue_id", "user_priority", "id"])


def _note_what_pilots_have() -> None:
    connection = op.get_bind()
    has: dict[int, tuple[list[int], float]] = {}
    sql = "SELECT pilot_id, id, started FROM jobs WHERE pilot_id IS NOT NULL ORDER BY id"
    for pilot, job, started in connection.execute(sa.text(sql)):
        jobs, last = has.get(pilot, ([], 0.0))
        jobs.append(job)
        has[pilot] = jobs, max(last, started or 0.0)
    rows = [{"pilot": pilot, "jobs": json.dumps(jobs), "at": last} for pilot, (jobs, last) in has.items()]
    if rows:
        connection.execute(sa.text("UPDATE pilots SET jobs = :jobs, taken_at = :at WHERE id = :pilot"), rows)
