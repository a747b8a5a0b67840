"""Mails that submissions have asked for and that are not sent yet."""

from __future__ import annotations

import sqlalchemy as sa

from pilotage.store.schema.base import Id, metadata

# A row is deleted before its mail is sent, so that no mail is sent twice.
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
