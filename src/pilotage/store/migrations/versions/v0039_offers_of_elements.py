"""The agent that got the present epoch of an element"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0039"
down_revision = "0038"
branch_labels = None
depends_on = None

number = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    """Nobody knows who had a free element before; its next offer says so."""
    op.add_column("elements", sa.Column("offered_to", number))
    op.execute("UPDATE elements SET offered_to = agent_id WHERE agent_id IS NOT NULL")
