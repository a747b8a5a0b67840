"""Jobs that are not archived, their attempts and results."""

from __future__ import annotations

import sqlalchemy as sa

from pilotage.store.schema.base import Id, metadata, partial_index

jobs = sa.Table(
    "jobs",
    metadata,
    sa.Column("id", Id, primary_key=True),
    sa.Column("submission_id", Id, nullable=False),
    sa.Column("queue_id", Id, nullable=False),
    sa.Column("state", sa.Text, nullable=False),
    sa.Column("user_priority", sa.SmallInteger, nullable=False),
    # JSON list of this job's parameter values; NULL: none.
    sa.Column("parameters", sa.Text),
    sa.Column("epoch", sa.Integer, nullable=False, server_default="0"),
    sa.Column("attempt", sa.Integer, nullable=False, server_default="0"),
    # Failed attempts; `own_failures` counts failures of the payload itself. Each kind has its own limit.
    sa.Column("failures", sa.Integer, nullable=False, server_default="0"),
    sa.Column("own_failures", sa.Integer, nullable=False, server_default="0"),
    sa.Column("pilot_id", Id),
    sa.Column("take_number", sa.Integer),
    sa.Column("finished_epoch", sa.Integer, nullable=False, server_default="0"),
    sa.Column("finished_digest", sa.Text, nullable=False, server_default=""),
    sa.Column("reason", sa.Text, nullable=False, server_default=""),
    sa.Column("exit_code", sa.Integer),
    sa.Column("submitted", sa.Float, nullable=False),
    # Matched: the time of the offer. Held: the time of the confirmation.
    sa.Column("started", sa.Float),
    sa.Column("ended", sa.Float),
    # Rescheduled: the time at which the job returns to its queue.
    sa.Column("not_before", sa.Float),
    sa.Column("last_event", Id, nullable=False, server_default="0"),
    # The job's own name; NULL: the submission's name.
    sa.Column("name", sa.Text),
    # Of the submission.
    sa.Column("owner", sa.Text, nullable=False, server_default=""),
    # The state of a final job; empty: the job is not final. An index over `state` would change with each match.
    sa.Column("final_state", sa.Text, nullable=False, server_default=""),
    # 1: other jobs depend on its end, or may do so.
    sa.Column("has_dependants", sa.SmallInteger, nullable=False, server_default="0"),
    # A match must change no index: one random page per index costs more than the job's own row.
    sa.Index("ix_jobs_queue", "queue_id", "user_priority", "id"),
    partial_index("ix_jobs_not_before", "not_before", where="not_before IS NOT NULL"),
    sa.Index("ix_jobs_owner", "owner", "final_state", "id"),
    # Finds the next jobs to archive. Only final jobs have an end.
    partial_index("ix_jobs_ended", "ended", where="ended IS NOT NULL"),
)

attempts = sa.Table(
    "attempts",
    metadata,
    sa.Column("job_id", Id, primary_key=True),
    sa.Column("epoch", sa.Integer, primary_key=True),
    sa.Column("attempt", sa.Integer, nullable=False),
    sa.Column("pilot_id", Id, nullable=False),
    sa.Column("started", sa.Float, nullable=False),
    sa.Column("ended", sa.Float),
    # 1: taken ahead, and its payload has not started. `ended` is then `started`, so that nothing is booked.
    sa.Column("ahead", sa.SmallInteger, nullable=False, server_default="0"),
    # NULL while the attempt runs; "applied", "retried", "lease over", "released", "killed".
    sa.Column("outcome", sa.Text),
    sa.Column("exit_code", sa.Integer),
    sa.Column("failure", sa.Text, nullable=False, server_default=""),
    sa.Column("message", sa.Text, nullable=False, server_default=""),
    sa.Column("wall", sa.Float, nullable=False, server_default="0"),
    sa.Column("cpu", sa.Float, nullable=False, server_default="0"),
    sa.Column("max_rss", sa.Integer, nullable=False, server_default="0"),
    sa.Column("processors", sa.Integer, nullable=False, server_default="1"),
    # Copied here because accounting outlives jobs, pilots and the policy's CEs.
    sa.Column("owner", sa.Text, nullable=False, server_default=""),
    sa.Column("grp", sa.Text, nullable=False, server_default=""),
    sa.Column("site", sa.Text, nullable=False, server_default=""),
    # Reference cores per core.
    sa.Column("cpu_power", sa.Float, nullable=False, server_default="1"),
    sa.Index("ix_attempts_ended", "ended"),
)

results = sa.Table(
    "results",
    metadata,
    sa.Column("job_id", Id, primary_key=True),
    sa.Column("epoch", sa.Integer, primary_key=True),
    # Small standard output and error. NULL: in a file of the output sandbox, or absent.
    sa.Column("stdout", sa.LargeBinary),
    sa.Column("stderr", sa.LargeBinary),
    # JSON lists: [name, size] of the uploaded files; patterns that matched nothing.
    sa.Column("outputs", sa.Text, nullable=False, server_default="[]"),
    sa.Column("missing", sa.Text, nullable=False, server_default="[]"),
    # JSON list of [name, reason]: files that matched a pattern and were not stored.
    sa.Column("refused", sa.Text, nullable=False, server_default="[]"),
)
