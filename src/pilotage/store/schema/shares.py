"""Fair shares: recorded use, corrections, outages, and the wait reasons of queues."""

from __future__ import annotations

import sqlalchemy as sa

from pilotage.store.schema.base import Id, metadata

# Periods in which the server was down or by which its clock stepped forward.
outages = sa.Table(
    "outages",
    metadata,
    sa.Column("id", Id, primary_key=True),
    sa.Column("down", sa.Float, nullable=False),
    sa.Column("up", sa.Float, nullable=False),
)

# A cache of recorded use, computed from the attempts (core/shares/use.py).
use_entities = sa.Table(
    "use_entities",
    metadata,
    sa.Column("place", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("owner", sa.Text, nullable=False),
    sa.Column("grp", sa.Text, nullable=False),
)

use_buckets = sa.Table(
    "use_buckets",
    metadata,
    # The length in seconds (a minute, an hour or a day) and the start of the bucket.
    sa.Column("span", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("start", sa.BigInteger, primary_key=True, autoincrement=False),
    # Little-endian arrays of equal length: places of entities (int64), job seconds and core seconds (float64).
    sa.Column("places", sa.LargeBinary, nullable=False),
    sa.Column("jobs", sa.LargeBinary, nullable=False),
    sa.Column("cores", sa.LargeBinary, nullable=False),
)

# One row: the state that correctors keep between corrections, and the time of the last correction.
corrections = sa.Table(
    "corrections",
    metadata,
    sa.Column("id", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("at", sa.Float, nullable=False),
    # JSON list of [corrector, instance, slice, entity, correction].
    sa.Column("memory", sa.Text, nullable=False),
    # JSON of the factors in force and of their inputs; empty: they are computed again.
    sa.Column("found", sa.Text, nullable=False, server_default=""),
)

# The history of wait reasons by queue; the reason is "" from when no job waits.
queue_reasons = sa.Table(
    "queue_reasons",
    metadata,
    sa.Column("id", Id, primary_key=True),
    sa.Column("queue_id", Id, nullable=False),
    sa.Column("since", sa.Float, nullable=False),
    sa.Column("reason", sa.Text, nullable=False),
    sa.Column("detail", sa.Text, nullable=False, server_default=""),
    sa.Index("ix_queue_reasons_queue", "queue_id", "id"),
)
