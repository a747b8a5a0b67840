"""Absences of pilots from listings; releases and waits of submissions"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0041"
down_revision = "0040"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """An absence of a whole submission is no absence of each of its pilots: all settle again."""
    op.add_column("pilots", sa.Column("absent_since", sa.Float()))
    op.add_column(
        "pilot_submissions", sa.Column("releases", sa.Integer(), nullable=False, server_default="0")
    )
    op.add_column("pilot_submissions", sa.Column("wait_class", sa.Text(), nullable=False, server_default=""))
    op.add_column("pilot_submissions", sa.Column("wait_since", sa.Float()))
    op.execute("UPDATE pilot_submissions SET absent_since = NULL WHERE phase = 'released'")
