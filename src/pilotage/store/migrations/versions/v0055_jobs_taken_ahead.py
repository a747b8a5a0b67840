"""Attempts that a pilot took ahead, and past ones that were given back before their start.

The use of the latter was booked from their confirm. Rows tell them by the words of their release alone.
"""

from __future__ import annotations

import json
from collections.abc import Iterator

import sqlalchemy as sa
from alembic import op

revision = "0055"
down_revision = "0054"
branch_labels = None
depends_on = None

NEVER_BEGAN = ("could not be started soon", "does not fit this node")
"""Why pilots gave back jobs that had not started."""


def upgrade() -> None:
    op.add_column("attempts", sa.Column("ahead", sa.SmallInteger, nullable=False, server_default="0"))
    connection = op.get_bind()
    sql = sa.text(
        "UPDATE attempts SET ended = started, ahead = 1 WHERE job_id = :job AND epoch = :epoch AND outcome = 'released'"
    )
    corrected = 0
    for job, epoch in list(_given_back(connection)):
        corrected += connection.execute(sql, {"job": job, "epoch": epoch}).rowcount
    if corrected:
        # The use of all attempts is added up again.
        connection.execute(sa.text("UPDATE instance SET use_as_of = NULL WHERE id = 1"))
        connection.execute(
            sa.text(
                "INSERT INTO counters (name, last) VALUES ('use_resets', 1)"
                " ON CONFLICT (name) DO UPDATE SET last = counters.last + 1"
            )
        )


def _given_back(connection: sa.Connection) -> Iterator[tuple[int, int]]:
    """(job, epoch) of attempts that never began."""
    rows = connection.execute(
        sa.text("SELECT jobs FROM events WHERE kind = 'released' AND detail IN (:stuck, :unfit)"),
        dict(zip(("stuck", "unfit"), NEVER_BEGAN, strict=True)),
    )
    for row in rows:
        for job, epoch, *_ in json.loads(row[0]):
            yield job, epoch
