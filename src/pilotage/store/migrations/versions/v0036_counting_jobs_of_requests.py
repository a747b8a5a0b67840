"""Indexes that count the jobs of a request without reading their rows"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0036"
down_revision = "0035"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.drop_index("ix_element_jobs_request", "element_jobs")
    op.create_index(
        "ix_element_jobs_request", "element_jobs",
        ["request_id", "state", "step", "site", "events", "files", "ended"],
    )  # fmt: skip
    failed = sa.text("failure <> '' OR state = 'exhausted'")
    op.create_index(
        "ix_element_jobs_failed", "element_jobs",
        ["request_id", "step", "exit_code", "failure", "state"],
        sqlite_where=failed, postgresql_where=failed,
    )  # fmt: skip
