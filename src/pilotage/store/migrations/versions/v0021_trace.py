"""Submissions of pilots are found by their batch id"""

from __future__ import annotations

from alembic import op

revision = "0021"
down_revision = "0020"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_index("ix_pilot_submissions_batch_id", "pilot_submissions", ["batch_id"])
