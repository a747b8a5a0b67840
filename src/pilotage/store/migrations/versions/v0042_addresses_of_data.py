"""Locations tell whether data has an address that can be read from other sites"""

from __future__ import annotations

import hashlib
import json

import sqlalchemy as sa
from alembic import op

revision = "0042"
down_revision = "0041"
branch_labels = None
depends_on = None

ELSEWHERE = "://"


def upgrade() -> None:
    """Blocks with an address move, and the duty of locations lets their elements follow."""
    connection = op.get_bind()
    blocks = connection.execute(
        sa.text(
            "SELECT DISTINCT b.id, s.id, s.sites FROM blocks b JOIN location_sets s ON s.id = b.location_set"
            " JOIN replicas r ON r.block_id = b.id WHERE r.prefix LIKE '%://%'"
        )
    ).fetchall()
    new: dict[int, int] = {}
    for block, old, text in blocks:
        sites = json.loads(text)
        if "*" in sites or ELSEWHERE in sites:
            continue
        if old not in new:
            new[old] = _set_of(connection, json.dumps(sorted({*sites, ELSEWHERE})))
        values = {"block": block, "set": new[old]}
        connection.execute(sa.text("UPDATE blocks SET location_set = :set WHERE id = :block"), values)
        connection.execute(
            sa.text(
                "INSERT INTO moved_blocks (block_id, number, moved) VALUES (:block, 1, 0)"
                " ON CONFLICT (block_id) DO UPDATE SET number = moved_blocks.number + 1"
            ),
            values,
        )
    for old, number in new.items():
        plain = connection.execute(
            sa.text("SELECT 1 FROM blocks WHERE location_set = :old LIMIT 1"), {"old": old}
        ).fetchone()
        if plain is None:
            # All data there has an address: jobs that were made go on as before.
            connection.execute(
                sa.text(
                    "UPDATE element_jobs SET location_set = :new WHERE location_set = :old"
                    " AND state IN ('made', 'released', 'cooloff')"
                ),
                {"old": old, "new": number},
            )


def _set_of(connection: sa.Connection, text: str) -> int:
    values = {"digest": hashlib.sha256(text.encode()).hexdigest(), "sites": text}
    connection.execute(
        sa.text(
            "INSERT INTO location_sets (digest, sites) VALUES (:digest, :sites) ON CONFLICT (digest) DO NOTHING"
        ),
        values,
    )
    row = connection.execute(
        sa.text("SELECT id FROM location_sets WHERE digest = :digest"), values
    ).fetchone()
    assert row is not None
    return int(row[0])
