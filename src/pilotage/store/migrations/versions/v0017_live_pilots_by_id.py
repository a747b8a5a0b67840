"""The index of live pilots has their ids, so that the pilots of a CE are read in slices"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0017"
down_revision = "0016"
branch_labels = None
depends_on = None


def upgrade() -> None:
    for old, new, column, condition in (
        ("ix_pilots_live", "ix_pilots_live", "id", "ended IS NULL"),
        ("ix_pilots_killed", "ix_pilots_leaving", "leave", "ended IS NULL AND leave <> ''"),
    ):
        where = sa.text(condition)
        op.drop_index(old, table_name="pilots")
        op.create_index(new, "pilots", ["ce", column], sqlite_where=where, postgresql_where=where)
