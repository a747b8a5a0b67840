"""Servers tell each other the addresses for their pilots, and the fingerprints of their certificates"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0018"
down_revision = "0017"
branch_labels = None
depends_on = None


def upgrade() -> None:
    with op.batch_alter_table("servers") as servers:
        servers.add_column(sa.Column("pilot_url", sa.Text(), server_default="", nullable=False))
        servers.add_column(sa.Column("fingerprints", sa.Text(), server_default="", nullable=False))
