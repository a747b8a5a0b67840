"""The pauses of queues at a CE, for `ce list` of every server"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0044"
down_revision = "0043"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("ces", sa.Column("queues_paused", sa.Integer(), nullable=False, server_default="0"))
    op.add_column("ces", sa.Column("queues_until", sa.Float(), nullable=False, server_default="0"))
