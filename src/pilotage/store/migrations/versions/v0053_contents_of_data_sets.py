"""The contents of the closed blocks of each data set, which were summed when somebody asked."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0053"
down_revision = "0052"
branch_labels = None
depends_on = None

_MOST = 2**63 - 1
_COUNTED = {"closed_files": "files", "closed_events": "events", "closed_size": "size"}


def upgrade() -> None:
    op.add_column("datasets", sa.Column("closed_blocks", sa.Integer, nullable=False, server_default="0"))
    for name in _COUNTED:
        op.add_column("datasets", sa.Column(name, sa.BigInteger, nullable=False, server_default="0"))
    of_dataset = "FROM blocks b WHERE b.dataset_id = datasets.id AND b.open = 0"
    sums = ", ".join(f"{name} = (SELECT {_sum(column)} {of_dataset})" for name, column in _COUNTED.items())
    op.execute(f"UPDATE datasets SET closed_blocks = (SELECT count(*) {of_dataset}), {sums}")


def _sum(column: str) -> str:
    """A sum of at most 64 bits, which a sum of sizes may exceed."""
    if op.get_bind().dialect.name != "sqlite":
        return f"least(coalesce(sum({column}), 0), {_MOST})::bigint"
    low = f"sum({column} & 4294967295)"
    high = f"(sum({column} >> 32) + ({low} >> 32))"
    whole = f"({high} << 32 | ({low} & 4294967295))"
    return f"coalesce(CASE WHEN {high} > 2147483647 THEN {_MOST} ELSE {whole} END, 0)"
