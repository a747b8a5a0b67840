"""Tokens of people that administrators have made, revocations, and the keys that sign tokens."""

from __future__ import annotations

import sqlalchemy as sa

from pilotage.store.schema.base import Id, metadata

# Renewed tokens keep their row. The token itself is not stored.
tokens = sa.Table(
    "tokens",
    metadata,
    # The event that records its creation.
    sa.Column("id", Id, primary_key=True, autoincrement=False),
    sa.Column("owner", sa.Text, nullable=False),
    sa.Column("grp", sa.Text, nullable=False),
    sa.Column("issued", sa.Float, nullable=False),
    sa.Column("expires", sa.Float, nullable=False),
    sa.Column("issued_by", sa.Text, nullable=False),
    sa.Column("revoked", sa.Float),
    sa.Column("revoked_by", sa.Text, nullable=False, server_default=""),
)

# All tokens of a user that were issued up to an instant are revoked.
token_cutoffs = sa.Table(
    "token_cutoffs",
    metadata,
    sa.Column("owner", sa.Text, primary_key=True),
    sa.Column("issued_until", sa.Float, nullable=False),
)

# Each rotation adds a key. It is made of the key in the home's secrets and this salt.
signing_keys = sa.Table(
    "signing_keys",
    metadata,
    # 0: the key in the home's secrets itself.
    sa.Column("number", Id, primary_key=True, autoincrement=False),
    sa.Column("salt", sa.Text, nullable=False),
    sa.Column("created", sa.Float, nullable=False),
    # NULL: it signs new tokens.
    sa.Column("accepted_until", sa.Float),
)
