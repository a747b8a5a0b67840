"""Jobs that wait for a parent whose end told nobody: parents are marked again, and their conditions decided again.

Parents that were created after the marks had none, neither had parents that waited again after their end.
"""

from __future__ import annotations

from alembic import op

revision = "0054"
down_revision = "0053"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute("UPDATE parent_submissions SET marked = 0, cursor = 0")
    for table in ("jobs", "history"):
        op.execute(
            "INSERT INTO parent_changes (job_id, submission_id, state) SELECT j.id, j.submission_id, j.state"
            f" FROM {table} j WHERE j.id IN (SELECT c.parent_job FROM conditions c WHERE c.parent_job <> 0"
            " AND c.outlook IN ('open', 'never')) ORDER BY j.id"
        )
