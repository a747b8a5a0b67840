"""Outside catalogues: how they answer, and the data sets that are copied from them or registered in them."""

from __future__ import annotations

import sqlalchemy as sa

from pilotage.store.schema.base import Id, metadata, partial_index

catalogues = sa.Table(
    "catalogues",
    metadata,
    # Its name in the policy.
    sa.Column("name", sa.Text, primary_key=True),
    # When it was last asked.
    sa.Column("asked", sa.Float, nullable=False),
    # When it last answered; NULL: never.
    sa.Column("answered", sa.Float),
    # Its software, version and account.
    sa.Column("software", sa.Text, nullable=False, server_default=""),
    # Why it does not serve; empty: it does.
    sa.Column("problem", sa.Text, nullable=False, server_default=""),
    # Since when it serves, or has this problem.
    sa.Column("since", sa.Float, nullable=False),
)

# Data sets whose `catalogue` is not empty.
followed_datasets = sa.Table(
    "followed_datasets",
    metadata,
    sa.Column("dataset_id", Id, primary_key=True, autoincrement=False),
    # When somebody last needed fresh knowledge.
    sa.Column("asked", sa.Float, nullable=False),
    # When the last complete reading began; NULL: there was none.
    sa.Column("read", sa.Float),
    # When the last reading began, complete or not; NULL: none has begun.
    sa.Column("tried", sa.Float),
    # Why the last reading failed; empty: it did not.
    sa.Column("problem", sa.Text, nullable=False, server_default=""),
    # Blocks that the last complete reading left out, and why.
    sa.Column("note", sa.Text, nullable=False, server_default=""),
)

# Closed blocks of output data sets that are named after a catalogue: the intention comes before the first call.
block_registrations = sa.Table(
    "block_registrations",
    metadata,
    sa.Column("block_id", Id, primary_key=True, autoincrement=False),
    sa.Column("dataset_id", Id, nullable=False),
    sa.Column("catalogue", sa.Text, nullable=False),
    sa.Column("intended", sa.Float, nullable=False),
    # When the catalogue had all of it; NULL: not yet.
    sa.Column("registered", sa.Float),
    # The last try, and the number of tries that failed.
    sa.Column("tried", sa.Float),
    sa.Column("failures", sa.Integer, nullable=False, server_default="0"),
    # Why the last try failed; empty: it did not.
    sa.Column("problem", sa.Text, nullable=False, server_default=""),
    partial_index("ix_block_registrations_open", "catalogue", "block_id", where="registered IS NULL"),
)

# Output data sets that are closed in their catalogue, with all of their blocks.
closed_registrations = sa.Table(
    "closed_registrations",
    metadata,
    sa.Column("dataset_id", Id, primary_key=True, autoincrement=False),
    sa.Column("closed", sa.Float, nullable=False),
)
