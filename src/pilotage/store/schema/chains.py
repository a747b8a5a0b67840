"""Gates: the conditions under which jobs that depend on others may wait for a pilot."""

from __future__ import annotations

import sqlalchemy as sa

from pilotage.store.schema.base import Id, metadata, partial_index

# A gate is closed as long as its jobs are Blocked. It is deleted when all of its jobs have passed.
gates = sa.Table(
    "gates",
    metadata,
    sa.Column("submission_id", Id, primary_key=True, autoincrement=False),
    # The one job that it stops; 0: all jobs of the submission.
    sa.Column("job_id", Id, primary_key=True, autoincrement=False),
    # open: undecided | met | never.
    sa.Column("outlook", sa.Text, nullable=False),
    # Why its jobs are skipped.
    sa.Column("reason", sa.Text, nullable=False, server_default=""),
    # 0: jobs after `cursor` may not be in the state that the outlook asks for.
    sa.Column("settled", sa.SmallInteger, nullable=False),
    sa.Column("cursor", Id, nullable=False, server_default="0"),
    partial_index("ix_gates_unsettled", "submission_id", "job_id", where="settled = 0"),
)

conditions = sa.Table(
    "conditions",
    metadata,
    sa.Column("submission_id", Id, primary_key=True, autoincrement=False),
    sa.Column("job_id", Id, primary_key=True, autoincrement=False),
    sa.Column("number", sa.Integer, primary_key=True, autoincrement=False),
    # after | after_ok | after_fail, and the parent: one job, or all jobs of a submission. The other one is 0.
    sa.Column("condition", sa.Text, nullable=False),
    sa.Column("parent_job", Id, nullable=False),
    sa.Column("parent_submission", Id, nullable=False),
    # As of the gate.
    sa.Column("outlook", sa.Text, nullable=False),
    sa.Column("reason", sa.Text, nullable=False, server_default=""),
    partial_index("ix_conditions_parent_job", "parent_job", where="parent_job <> 0"),
    partial_index("ix_conditions_parent_submission", "parent_submission", where="parent_submission <> 0"),
)

# Submissions that others depend on. Their unfinished jobs get the mark `has_dependants`, in slices.
parent_submissions = sa.Table(
    "parent_submissions",
    metadata,
    sa.Column("submission_id", Id, primary_key=True, autoincrement=False),
    # Jobs up to this id are marked.
    sa.Column("cursor", Id, nullable=False, server_default="0"),
    sa.Column("marked", sa.SmallInteger, nullable=False, server_default="0"),
    partial_index("ix_parent_submissions_unmarked", "submission_id", where="marked = 0"),
)

# Written with the end of a job that others depend on, and deleted when their conditions have been decided.
parent_changes = sa.Table(
    "parent_changes",
    metadata,
    sa.Column("id", Id, primary_key=True),
    # 0: only conditions on the submission must be decided.
    sa.Column("job_id", Id, nullable=False),
    sa.Column("submission_id", Id, nullable=False),
    # The new state of the job.
    sa.Column("state", sa.Text, nullable=False),
)
