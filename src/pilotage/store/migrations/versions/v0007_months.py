"""On PostgreSQL history and events are divided into months"""

from __future__ import annotations

from datetime import UTC, datetime

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None

AHEAD, MOST = 3, 120
"""Months created ahead, and the maximum of past months with rows. Other rows stay in the default partition."""

HISTORY = (
    ("owner", "owner, state, id", ""),
    ("grp", "grp, state, id", ""),
    ("state", "state, id", ""),
    ("submission", "submission_id, id", ""),
    ("job_group", "job_group, id", " WHERE job_group <> ''"),
    ("job_name", "job_name, id", " WHERE job_name <> ''"),
    ("ended", "ended", ""),
)


def upgrade() -> None:
    if op.get_bind().dialect.name != "postgresql":
        return
    _divide("history", "ended")
    # After the rows are copied, because building an index at once is faster.
    for name, columns, where in HISTORY:
        op.execute(f"CREATE INDEX ix_history_{name} ON history ({columns}){where}")
    _divide("events", "at")


def _divide(table: str, by: str) -> None:
    """The rows are copied once: the table needs its room twice until the end."""
    op.execute(f"ALTER TABLE {table} RENAME TO undivided")
    # Ids are given by the servers: there is no sequence.
    op.execute(f"CREATE TABLE {table} (LIKE undivided) PARTITION BY RANGE ({by})")
    op.execute(f"CREATE TABLE {table}_default PARTITION OF {table} DEFAULT")
    for month in _months(by):
        bounds = f"FROM ({_begin(month)}) TO ({_begin(_following(month))})"
        op.execute(f"CREATE TABLE {table}_{month} PARTITION OF {table} FOR VALUES {bounds}")
    op.execute(f"INSERT INTO {table} SELECT * FROM undivided")
    op.execute("DROP TABLE undivided")
    op.execute(f"ALTER TABLE {table} ADD PRIMARY KEY (id, {by})")


def _months(by: str) -> list[int]:
    """Months with rows, the current month, and the following months."""
    connection = op.get_bind()
    # Days of dates that Python knows.
    sql = f'SELECT DISTINCT floor("{by}" / 86400) FROM undivided WHERE "{by}" >= 0 AND "{by}" < 1e11'
    found = {_month(86400 * row[0]) for row in connection.execute(sa.text(sql))}
    month = _month(connection.execute(sa.text("SELECT extract(epoch FROM now())::float8")).scalar_one())
    ahead = []
    for _ in range(AHEAD + 1):
        ahead.append(month)
        month = _following(month)
    return sorted({*sorted(found)[-MOST:], *ahead})


def _month(at: float) -> int:
    day = datetime.fromtimestamp(at, UTC)
    return day.year * 100 + day.month


def _following(month: int) -> int:
    return month + 1 if month % 100 < 12 else month + 89


def _begin(month: int) -> float:
    return datetime(month // 100, month % 100, 1, tzinfo=UTC).timestamp()
