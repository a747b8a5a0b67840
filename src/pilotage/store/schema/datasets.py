"""The catalogue: data sets, their blocks and files, and the places of replicas."""

from __future__ import annotations

import sqlalchemy as sa

from pilotage.store.schema.base import Id, metadata, partial_index

datasets = sa.Table(
    "datasets",
    metadata,
    sa.Column("id", Id, primary_key=True),
    sa.Column("name", sa.Text, nullable=False, unique=True),
    sa.Column("owner", sa.Text, nullable=False),
    sa.Column("grp", sa.Text, nullable=False),
    sa.Column("created", sa.Float, nullable=False),
    # 1: more blocks may come.
    sa.Column("open", sa.SmallInteger, nullable=False, server_default="1"),
    # The request, and the position of its step, that write this data set; NULL: it was registered by a user.
    sa.Column("request_id", Id),
    sa.Column("step", sa.Integer),
    # The outside catalogue that it is copied from, or registered in if a request writes it; empty: none.
    sa.Column("catalogue", sa.Text, nullable=False, server_default=""),
    # When a user removed it; its rows are deleted in slices. NULL: it is there.
    sa.Column("removed", sa.Float),
    # Of its closed blocks: their number and contents, changed with the close of each.
    sa.Column("closed_blocks", sa.Integer, nullable=False, server_default="0"),
    sa.Column("closed_files", sa.BigInteger, nullable=False, server_default="0"),
    sa.Column("closed_events", sa.BigInteger, nullable=False, server_default="0"),
    sa.Column("closed_size", sa.BigInteger, nullable=False, server_default="0"),
    # Ids are never reused: elements and files of the past refer to them.
    sqlite_autoincrement=True,
)

blocks = sa.Table(
    "blocks",
    metadata,
    sa.Column("id", Id, primary_key=True),
    sa.Column("dataset_id", Id, nullable=False),
    sa.Column("name", sa.Text, nullable=False),
    sa.Column("created", sa.Float, nullable=False),
    # 1: more files may come. Elements are made of closed blocks only.
    sa.Column("open", sa.SmallInteger, nullable=False, server_default="1"),
    # When it was closed: a step takes closed blocks in the order of this number. NULL: it is open.
    sa.Column("closed_number", Id),
    sa.Column("files", sa.Integer, nullable=False, server_default="0"),
    sa.Column("events", sa.BigInteger, nullable=False, server_default="0"),
    sa.Column("size", sa.BigInteger, nullable=False, server_default="0"),
    # The set of sites with a replica, as of `located`; 0: not known.
    sa.Column("location_set", Id, nullable=False, server_default="0"),
    # NULL: the location was never known. Unknown is not empty.
    sa.Column("located", sa.Float),
    sa.UniqueConstraint("dataset_id", "name", name="uq_blocks_name"),
    sa.Index("ix_blocks_dataset", "dataset_id", "id"),
    partial_index("ix_blocks_open", "dataset_id", "id", where="open = 1"),
    partial_index("ix_blocks_closed", "dataset_id", "closed_number", where="closed_number IS NOT NULL"),
    sqlite_autoincrement=True,
)

files = sa.Table(
    "files",
    metadata,
    sa.Column("id", Id, primary_key=True),
    sa.Column("dataset_id", Id, nullable=False),
    sa.Column("block_id", Id, nullable=False),
    sa.Column("name", sa.Text, nullable=False),
    sa.Column("size", sa.BigInteger, nullable=False, server_default="0"),
    sa.Column("events", sa.BigInteger, nullable=False, server_default="0"),
    # ALGORITHM:HEX; empty: not known.
    sa.Column("checksum", sa.Text, nullable=False, server_default=""),
    # JSON list of [run, first, last]; empty: none are known.
    sa.Column("lumis", sa.Text, nullable=False, server_default=""),
    sa.Column("created", sa.Float, nullable=False),
    # The element job that wrote it; NULL: it was registered by a user.
    sa.Column("element_job_id", Id),
    sa.UniqueConstraint("dataset_id", "name", name="uq_files_name"),
    sa.Index("ix_files_block", "block_id", "id"),
    sqlite_autoincrement=True,
)

# A file's path at a site is the prefix of its block there, a slash, and its name.
replicas = sa.Table(
    "replicas",
    metadata,
    sa.Column("block_id", Id, primary_key=True, autoincrement=False),
    sa.Column("site", sa.Text, primary_key=True),
    # A folder or URL without a slash at its end.
    sa.Column("prefix", sa.Text, nullable=False),
    # When this was last known to be true.
    sa.Column("known", sa.Float, nullable=False),
)

location_sets = sa.Table(
    "location_sets",
    metadata,
    # 0 is no row: a location that is not known. 1 is always ["*"].
    sa.Column("id", Id, primary_key=True),
    # SHA-256 of `sites`.
    sa.Column("digest", sa.Text, nullable=False, unique=True),
    # Sorted JSON list; ["*"]: anywhere.
    sa.Column("sites", sa.Text, nullable=False),
    sqlite_autoincrement=True,
)

# Blocks whose location has changed, while elements may still have the earlier one.
moved_blocks = sa.Table(
    "moved_blocks",
    metadata,
    sa.Column("block_id", Id, primary_key=True, autoincrement=False),
    # Raised by each change.
    sa.Column("number", sa.Integer, nullable=False),
    sa.Column("moved", sa.Float, nullable=False),
)

# Storage places that pilots of a site were given, now or earlier: outputs lie in no others.
storage_places = sa.Table(
    "storage_places",
    metadata,
    sa.Column("site", sa.Text, primary_key=True),
    sa.Column("path", sa.Text, primary_key=True),
)
