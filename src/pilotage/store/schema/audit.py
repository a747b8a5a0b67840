"""The audit log: changes that people have made through the API, besides work on their own jobs."""

from __future__ import annotations

import sqlalchemy as sa

from pilotage.store.schema.base import Id, metadata

audit_log = sa.Table(
    "audit_log",
    metadata,
    sa.Column("id", Id, primary_key=True),
    sa.Column("at", sa.Float, nullable=False),
    # Who, in which group, and from which address. Empty: not known, as at a first sign-in at an issuer.
    sa.Column("user_name", sa.Text, nullable=False),
    sa.Column("grp", sa.Text, nullable=False, server_default=""),
    sa.Column("address", sa.Text, nullable=False, server_default=""),
    # The API call, such as "POST /v1/bans".
    sa.Column("call", sa.Text, nullable=False),
    # The changed object, and its state before and after, in words without secrets.
    sa.Column("target", sa.Text, nullable=False),
    sa.Column("before", sa.Text, nullable=False, server_default=""),
    sa.Column("after", sa.Text, nullable=False, server_default=""),
    sa.Column("reason", sa.Text, nullable=False, server_default=""),
    sa.Index("ix_audit_log_at", "at"),
    sa.Index("ix_audit_log_user", "user_name", "id"),
)
