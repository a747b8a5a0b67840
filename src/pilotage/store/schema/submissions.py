"""Submissions with their chunks, uploads, mails and limits, and the task queues."""

from __future__ import annotations

import sqlalchemy as sa

from pilotage.store.schema.base import Id, metadata, partial_index

submissions = sa.Table(
    "submissions",
    metadata,
    sa.Column("id", Id, primary_key=True),
    sa.Column("owner", sa.Text, nullable=False),
    sa.Column("grp", sa.Text, nullable=False),
    sa.Column("idempotency_key", sa.Text),
    sa.Column("submitted", sa.Float, nullable=False),
    # Shared by all jobs and stored once: JSON of the job description, of its inputs and of the parameters' names.
    sa.Column("description", sa.Text, nullable=False),
    sa.Column("inputs", sa.Text, nullable=False),
    sa.Column("names", sa.Text, nullable=False),
    sa.Column("job_name", sa.Text, nullable=False),
    sa.Column("job_group", sa.Text, nullable=False),
    sa.Column("job_type", sa.Text, nullable=False),
    sa.Column("queue_id", Id, nullable=False),
    sa.Column("first_job", Id, nullable=False),
    sa.Column("count", sa.Integer, nullable=False),
    sa.Column("warnings", sa.Text, nullable=False),
    # open: more rows may come | staged: its rows are being stored, not accepted yet | closed.
    sa.Column("state", sa.Text, nullable=False, server_default="closed"),
    # The time of the last request for this submission.
    sa.Column("touched", sa.Float, nullable=False, server_default="0"),
    # The number of jobs for which ids are reserved: of a whole submission, or announced at most. NULL: not announced.
    sa.Column("expected", sa.BigInteger),
    # Jobs that retention has deleted.
    sa.Column("forgotten", sa.Integer, nullable=False, server_default="0"),
    # The request whose element jobs these jobs are; NULL: they are a user's.
    sa.Column("request_id", Id),
    sa.UniqueConstraint("owner", "idempotency_key", name="uq_submissions_key"),
    sa.Index("ix_submissions_owner", "owner", "id"),
    partial_index("ix_submissions_open", "touched", where="state <> 'closed'"),
    partial_index("ix_submissions_request", "request_id", where="request_id IS NOT NULL"),
    partial_index("ix_submissions_job_group", "job_group", where="job_group <> ''"),
)

# Chunks: parameter rows of a submission, as they were accepted together.
submission_chunks = sa.Table(
    "submission_chunks",
    metadata,
    sa.Column("submission_id", Id, primary_key=True, autoincrement=False),
    sa.Column("number", sa.Integer, primary_key=True, autoincrement=False),
    # SHA-256 of the rows; empty: unknown.
    sa.Column("digest", sa.Text, nullable=False),
    sa.Column("first_job", Id, nullable=False),
    sa.Column("count", sa.Integer, nullable=False),
    # Jobs created so far, in the order of their ids.
    sa.Column("made", sa.Integer, nullable=False),
    sa.Column("accepted", sa.Float, nullable=False),
    partial_index("ix_submission_chunks_unmade", "submission_id", where="made < count"),
)

# JSON list of a chunk's rows, kept until all its jobs are created: no accepted row is lost in a crash.
pending_rows = sa.Table(
    "pending_rows",
    metadata,
    sa.Column("submission_id", Id, primary_key=True, autoincrement=False),
    sa.Column("number", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("rows", sa.Text, nullable=False),
)

# Uploaded files that the rows of a chunk name: inputs of single jobs.
chunk_files = sa.Table(
    "chunk_files",
    metadata,
    sa.Column("submission_id", Id, primary_key=True, autoincrement=False),
    sa.Column("number", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("digest", sa.Text, primary_key=True),
    sa.Index("ix_chunk_files_digest", "digest"),
)

uploads = sa.Table(
    "uploads",
    metadata,
    sa.Column("owner", sa.Text, primary_key=True),
    sa.Column("digest", sa.Text, primary_key=True),
    sa.Column("size", sa.BigInteger, nullable=False),
    sa.Column("uploaded", sa.Float, nullable=False),
)

queues = sa.Table(
    "queues",
    metadata,
    sa.Column("id", Id, primary_key=True),
    sa.Column("digest", sa.Text, nullable=False, unique=True),
    sa.Column("owner", sa.Text, nullable=False),
    sa.Column("grp", sa.Text, nullable=False),
    sa.Column("identity", sa.Text, nullable=False),
    sa.Column("created", sa.Float, nullable=False),
    # When the queue was first found without jobs; it is deleted a day later. NULL: it has jobs, or was not checked.
    sa.Column("empty_since", sa.Float),
    # Ids are never reused: archived jobs refer to deleted queues.
    sqlite_autoincrement=True,
)

# Mails that submissions have asked for and that are not sent yet. A row is deleted before its mail is sent, so that no
# mail is sent twice.
mails = sa.Table(
    "mails",
    metadata,
    sa.Column("submission_id", Id, primary_key=True, autoincrement=False),
    # end | fail.
    sa.Column("event", sa.Text, primary_key=True),
    sa.Column("recipient", sa.Text, nullable=False),
    # Failed tries, and the time of the next one.
    sa.Column("tries", sa.Integer, nullable=False, server_default="0"),
    sa.Column("not_before", sa.Float, nullable=False, server_default="0"),
)

# Outputs of jobs that are inputs of other jobs. Rows are deleted when all jobs of the submission have ended.
handed_outputs = sa.Table(
    "handed_outputs",
    metadata,
    # The submission whose jobs read the output.
    sa.Column("submission_id", Id, primary_key=True, autoincrement=False),
    sa.Column("number", sa.Integer, primary_key=True, autoincrement=False),
    # The job that writes it, and its name there.
    sa.Column("job_id", Id, nullable=False),
    sa.Column("name", sa.Text, nullable=False),
    # 1: the retention would have deleted the job's outputs.
    sa.Column("expired", sa.SmallInteger, nullable=False, server_default="0"),
    sa.Index("ix_handed_outputs_job", "job_id"),
)

# Limits on the jobs of a submission that run at once.
parallel_limits = sa.Table(
    "parallel_limits",
    metadata,
    sa.Column("submission_id", Id, primary_key=True, autoincrement=False),
    # The most of its jobs that wait for a pilot or run; 0: no limit any more.
    sa.Column("running", sa.Integer, nullable=False),
    # 0: Blocked jobs may have to move, since a job has ended or the limit has changed.
    sa.Column("settled", sa.SmallInteger, nullable=False, server_default="0"),
    partial_index("ix_parallel_limits_unsettled", "submission_id", where="settled = 0"),
)
