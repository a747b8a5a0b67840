"""The clock of each pilot's node, compared with the server's"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0023"
down_revision = "0022"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("pilots", sa.Column("clock_offset", sa.Float()))
