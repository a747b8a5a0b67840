"""Each pilot's booked core-seconds, and the payload among them"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0022"
down_revision = "0021"
branch_labels = None
depends_on = None


def upgrade() -> None:
    # Earlier bookings are not added: `costs` does not name their pilots, so the sums begin with this migration.
    for column in ("core_seconds", "payload_core_seconds"):
        op.add_column("pilots", sa.Column(column, sa.Float(), nullable=False, server_default="0"))
