"""Tries in the pool count for element jobs, and sites where an input could not be read are avoided"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0040"
down_revision = "0039"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("job_outcomes", sa.Column("tries", sa.Integer(), nullable=False, server_default="1"))
    op.add_column("job_outcomes", sa.Column("site", sa.Text(), nullable=False, server_default=""))
    op.add_column("element_jobs", sa.Column("avoided_sites", sa.Text(), nullable=False, server_default="[]"))
    op.drop_index("ix_element_jobs_made", "element_jobs")
    made = sa.text("state = 'made'")
    op.create_index(
        "ix_element_jobs_made", "element_jobs",
        ["request_id", "step", "location_set", "agent_id", "avoided_sites", "id"],
        sqlite_where=made, postgresql_where=made,
    )  # fmt: skip
