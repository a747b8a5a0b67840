"""Submissions in chunks: rows that come in pieces, each accepted by itself"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None


def upgrade() -> None:
    number = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
    op.create_table(
        "submission_chunks",
        sa.Column("submission_id", number, autoincrement=False, nullable=False),
        sa.Column("number", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("digest", sa.Text(), nullable=False),
        sa.Column("first_job", number, nullable=False),
        sa.Column("count", sa.Integer(), nullable=False),
        sa.Column("made", sa.Integer(), nullable=False),
        sa.Column("accepted", sa.Float(), nullable=False),
        sa.PrimaryKeyConstraint("submission_id", "number"),
    )
    op.create_index(
        "ix_submission_chunks_unmade",
        "submission_chunks",
        ["submission_id"],
        sqlite_where=sa.text("made < count"),
        postgresql_where=sa.text("made < count"),
    )
    op.create_table(
        "pending_rows",
        sa.Column("submission_id", number, autoincrement=False, nullable=False),
        sa.Column("number", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("rows", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("submission_id", "number"),
    )
    # Each submission has been one chunk, however large.
    op.execute(
        "INSERT INTO submission_chunks (submission_id, number, digest, first_job, count, made, accepted)"
        " SELECT s.id, 0, '', s.first_job, s.count, CASE WHEN s.pending IS NULL THEN s.count ELSE coalesce("
        "(SELECT max(made.id) FROM (SELECT id, submission_id FROM jobs UNION ALL SELECT id, submission_id FROM history)"
        " AS made WHERE made.submission_id = s.id) - s.first_job + 1, 0) END, s.submitted FROM submissions s"
    )
    op.execute(
        "INSERT INTO pending_rows (submission_id, number, rows)"
        " SELECT id, 0, pending FROM submissions WHERE pending IS NOT NULL"
    )
    with op.batch_alter_table("submissions") as submissions:
        submissions.add_column(sa.Column("state", sa.Text(), server_default="closed", nullable=False))
        submissions.add_column(sa.Column("touched", sa.Float(), server_default="0", nullable=False))
        submissions.add_column(sa.Column("expected", sa.BigInteger(), nullable=True))
        submissions.add_column(sa.Column("forgotten", sa.Integer(), server_default="0", nullable=False))
        submissions.drop_column("pending")
        submissions.create_index(
            "ix_submissions_open",
            ["touched"],
            sqlite_where=sa.text("state <> 'closed'"),
            postgresql_where=sa.text("state <> 'closed'"),
        )
    op.execute(
        "UPDATE submissions SET touched = submitted, forgotten ="
        " (SELECT c.made FROM submission_chunks c WHERE c.submission_id = submissions.id)"
        " - (SELECT count(*) FROM jobs j WHERE j.submission_id = submissions.id)"
        " - (SELECT count(*) FROM history h WHERE h.submission_id = submissions.id)"
    )
