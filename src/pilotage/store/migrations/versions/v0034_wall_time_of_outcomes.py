"""The wall time of the attempts whose ends the roll-up reads"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0034"
down_revision = "0033"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("job_outcomes", sa.Column("wall", sa.Float(), nullable=False, server_default="0"))
