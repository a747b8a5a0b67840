"""Available elements are found by step too: the data of a step decides where they may run"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0027"
down_revision = "0026"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.drop_index("ix_elements_available", "elements")
    where = sa.text("state = 'Available'")
    op.create_index(
        "ix_elements_available",
        "elements",
        ["request_id", "step", "location_set", "id"],
        sqlite_where=where,
        postgresql_where=where,
    )
