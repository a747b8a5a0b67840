"""The first schema with a promise of upgrades. `store.admin.upgrade` makes it without Alembic."""

from __future__ import annotations

revision = "0050"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Nothing: a new database has the schema of the tables' definitions from the beginning."""
