"""The HostRequirements and OutputSE of jobs are part of their task queue"""

from __future__ import annotations

import hashlib
import json

import sqlalchemy as sa
from alembic import op

revision = "0033"
down_revision = "0032"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Move jobs with one of them that may still wait to a queue with it. Queues without them keep their text."""
    connection = op.get_bind()
    unfinished = (
        "SELECT s.id, s.description, q.id, q.owner, q.grp, q.identity, q.created"
        " FROM submissions s JOIN queues q ON q.id = s.queue_id"
        " WHERE (s.description LIKE '%\"host_requirements\"%' OR s.description LIKE '%\"output_se\"%')"
        " AND (EXISTS (SELECT 1 FROM jobs j WHERE j.submission_id = s.id"
        " AND j.state IN ('Waiting', 'Matched', 'Running', 'Stalled', 'Completing', 'Rescheduled'))"
        " OR EXISTS (SELECT 1 FROM submission_chunks c WHERE c.submission_id = s.id AND c.made < c.count))"
        " ORDER BY s.id"
    )
    for submission, description, queue, owner, group, identity, created in connection.execute(
        sa.text(unfinished)
    ).fetchall():
        asked = json.loads(description)
        further = {name: str(asked[name]) for name in ("host_requirements", "output_se") if asked.get(name)}
        if not further:
            continue
        text = json.dumps({**json.loads(identity), **further}, sort_keys=True, separators=(",", ":"))
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
