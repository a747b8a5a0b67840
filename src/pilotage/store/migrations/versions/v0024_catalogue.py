"""Data sets, their blocks and files, and the places of replicas"""

from __future__ import annotations

import hashlib

import sqlalchemy as sa
from alembic import op

revision = "0024"
down_revision = "0023"
branch_labels = None
depends_on = None

number = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    _datasets()
    _blocks()
    _files()
    _replicas()
    _location_sets()


def _datasets() -> None:
    op.create_table(
        "datasets",
        sa.Column("id", number, nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("owner", sa.Text(), nullable=False),
        sa.Column("grp", sa.Text(), nullable=False),
        sa.Column("created", sa.Float(), nullable=False),
        sa.Column("open", sa.SmallInteger(), nullable=False, server_default="1"),
        sa.Column("request_id", number),
        sa.Column("step", sa.Integer()),
        sa.PrimaryKeyConstraint("id"),
        sa.UniqueConstraint("name"),
        sqlite_autoincrement=True,
    )


def _blocks() -> None:
    op.create_table(
        "blocks",
        sa.Column("id", number, nullable=False),
        sa.Column("dataset_id", number, nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("created", sa.Float(), nullable=False),
        sa.Column("open", sa.SmallInteger(), nullable=False, server_default="1"),
        sa.Column("closed_number", number),
        sa.Column("files", sa.Integer(), nullable=False, server_default="0"),
        sa.Column("events", sa.BigInteger(), nullable=False, server_default="0"),
        sa.Column("size", sa.BigInteger(), nullable=False, server_default="0"),
        sa.Column("location_set", number, nullable=False, server_default="0"),
        sa.Column("located", sa.Float()),
        sa.PrimaryKeyConstraint("id"),
        sa.UniqueConstraint("dataset_id", "name", name="uq_blocks_name"),
        sqlite_autoincrement=True,
    )
    where = sa.text("closed_number IS NOT NULL")
    op.create_index(
        "ix_blocks_closed",
        "blocks",
        ["dataset_id", "closed_number"],
        sqlite_where=where,
        postgresql_where=where,
    )
    op.create_index("ix_blocks_dataset", "blocks", ["dataset_id", "id"])


def _files() -> None:
    op.create_table(
        "files",
        sa.Column("id", number, nullable=False),
        sa.Column("dataset_id", number, nullable=False),
        sa.Column("block_id", number, nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("size", sa.BigInteger(), nullable=False, server_default="0"),
        sa.Column("events", sa.BigInteger(), nullable=False, server_default="0"),
        sa.Column("checksum", sa.Text(), nullable=False, server_default=""),
        sa.Column("lumis", sa.Text(), nullable=False, server_default=""),
        sa.Column("created", sa.Float(), nullable=False),
        sa.Column("element_job_id", number),
        sa.PrimaryKeyConstraint("id"),
        sa.UniqueConstraint("dataset_id", "name", name="uq_files_name"),
        sqlite_autoincrement=True,
    )
    op.create_index("ix_files_block", "files", ["block_id", "id"])


def _replicas() -> None:
    op.create_table(
        "replicas",
        sa.Column("block_id", number, autoincrement=False, nullable=False),
        sa.Column("site", sa.Text(), nullable=False),
        sa.Column("prefix", sa.Text(), nullable=False),
        sa.Column("known", sa.Float(), nullable=False),
        sa.PrimaryKeyConstraint("block_id", "site"),
    )


def _location_sets() -> None:
    op.create_table(
        "location_sets",
        sa.Column("id", number, nullable=False),
        sa.Column("digest", sa.Text(), nullable=False),
        sa.Column("sites", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("id"),
        sa.UniqueConstraint("digest"),
        sqlite_autoincrement=True,
    )
    sites = '["*"]'
    sets = sa.table("location_sets", sa.column("digest", sa.Text), sa.column("sites", sa.Text))
    # The first row of the table: its id is 1.
    op.execute(sa.insert(sets).values(digest=hashlib.sha256(sites.encode()).hexdigest(), sites=sites))
