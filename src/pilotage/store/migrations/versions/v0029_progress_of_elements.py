"""The ended jobs of elements, and made jobs by agent"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0029"
down_revision = "0028"
branch_labels = None
depends_on = None

INTEGERS = ("jobs_done", "jobs_failed", "jobs_canceled")


def upgrade() -> None:
    for name in INTEGERS:
        op.add_column("elements", sa.Column(name, sa.Integer(), nullable=False, server_default="0"))
    op.add_column("elements", sa.Column("events_done", sa.BigInteger(), nullable=False, server_default="0"))
    op.drop_index("ix_element_jobs_made", "element_jobs")
    where = sa.text("state = 'made'")
    op.create_index(
        "ix_element_jobs_made",
        "element_jobs",
        ["request_id", "step", "location_set", "agent_id", "id"],
        sqlite_where=where,
        postgresql_where=where,
    )
