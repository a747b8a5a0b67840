"""Elements that their agents could not split"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0032"
down_revision = "0031"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """An element of before has failed either by its jobs, which it counts, or because it could not be split."""
    op.add_column("elements", sa.Column("unsplit", sa.SmallInteger(), nullable=False, server_default="0"))
    op.execute("UPDATE elements SET unsplit = 1 WHERE state = 'Failed' AND jobs_failed = 0")
