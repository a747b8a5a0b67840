"""Bans of users from sites."""

from __future__ import annotations

import sqlalchemy as sa

from pilotage.store.schema.base import Id, metadata, partial_index

bans = sa.Table(
    "bans",
    metadata,
    sa.Column("id", Id, primary_key=True),
    sa.Column("owner", sa.Text, nullable=False),
    # Empty: all sites.
    sa.Column("site", sa.Text, nullable=False, server_default=""),
    sa.Column("banned_by", sa.Text, nullable=False),
    sa.Column("reason", sa.Text, nullable=False, server_default=""),
    sa.Column("since", sa.Float, nullable=False),
    # NULL: until it is lifted.
    sa.Column("until", sa.Float),
    # When and by whom it was ended; NULL: it is in force. "server": its time was over.
    sa.Column("ended", sa.Float),
    sa.Column("ended_by", sa.Text, nullable=False, server_default=""),
    # NULL: running jobs of the owner may be left.
    sa.Column("enforced", sa.Float),
    partial_index("ix_bans_in_force", "owner", "site", unique=True, where="ended IS NULL"),
)
