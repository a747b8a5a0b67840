"""The first request of each chain of resubmissions"""

from __future__ import annotations

import json

import sqlalchemy as sa
from alembic import op

revision = "0037"
down_revision = "0036"
branch_labels = None
depends_on = None

number = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    """The specification of a resubmission lists its chain, the first request first."""
    op.add_column("requests", sa.Column("root_id", number))
    op.create_index(
        "ix_requests_root", "requests", ["root_id"],
        sqlite_where=sa.text("root_id IS NOT NULL"), postgresql_where=sa.text("root_id IS NOT NULL"),
    )  # fmt: skip
    connection = op.get_bind()
    copies = connection.execute(
        sa.text("SELECT id, specification FROM requests WHERE specification LIKE '%\"resubmits\"%'")
    ).fetchall()
    chains = [(request, json.loads(text).get("resubmits")) for request, text in copies]
    rows = [{"request": request, "root": chain[0]} for request, chain in chains if chain]
    if rows:
        connection.execute(sa.text("UPDATE requests SET root_id = :root WHERE id = :request"), rows)
