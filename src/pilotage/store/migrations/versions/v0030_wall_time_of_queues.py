"""The wall time of jobs is part of their task queue"""

from __future__ import annotations

import hashlib
import json

import sqlalchemy as sa
from alembic import op

revision = "0030"
down_revision = "0029"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Move jobs with a wall time that may still wait to a queue with it. Queues without wall time keep their text."""
    connection = op.get_bind()
    unfinished = (
        "SELECT s.id, s.description, q.id, q.owner, q.grp, q.identity, q.created"
        " FROM submissions s JOIN queues q ON q.id = s.queue_id"
        " WHERE s.description LIKE '%\"wall_time\"%' AND (EXISTS (SELECT 1 FROM jobs j WHERE j.submission_id = s.id"
        " AND j.state IN ('Waiting', 'Matched', 'Running', 'Stalled', 'Completing', 'Rescheduled'))"
        " OR EXISTS (SELECT 1 FROM submission_chunks c WHERE c.submission_id = s.id AND c.made < c.count))"
        " ORDER BY s.id"
    )
    for submission, description, queue, owner, group, identity, created in connection.execute(
        sa.text(unfinished)
    ).fetchall():
        wall_time = _bucket(int(json.loads(description).get("wall_time") or 0))
        if not wall_time:
            continue
        timed = {**json.loads(identity), "wall_time": wall_time}
        text = json.dumps(timed, sort_keys=True, separators=(",", ":"))
        values = {
            "digest": hashlib.sha256(text.encode()).hexdigest(),
            "owner": owner,
            "grp": group,
            "identity": text,
            "created": created,
        }
        known = connection.execute(sa.text("SELECT id FROM queues WHERE digest = :digest"), values).fetchone()
        if known is None:
            insert = (
                "INSERT INTO queues (digest, owner, grp, identity, created)"
                " VALUES (:digest, :owner, :grp, :identity, :created) RETURNING id"
            )
            known = connection.execute(sa.text(insert), values).fetchone()
        assert known is not None
        places = {"new": known[0], "old": queue, "submission": submission}
        connection.execute(sa.text("UPDATE submissions SET queue_id = :new WHERE id = :submission"), places)
        connection.execute(
            sa.text("UPDATE jobs SET queue_id = :new WHERE submission_id = :submission AND queue_id = :old"),
            places,
        )


def _bucket(seconds: int) -> int:
    """As `wall_bucket` of this version, which later versions may change."""
    steps = ((60, 1), (3600, 60), (6 * 3600, 300), (86400, 900))
    step = next((step for most, step in steps if seconds <= most), 3600)
    return max(0, -(-seconds // step) * step)
