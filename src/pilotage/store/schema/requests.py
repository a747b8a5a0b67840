"""Requests, their steps, and their history."""

from __future__ import annotations

import sqlalchemy as sa

from pilotage.store.schema.base import POSTGRESQL_ONLY, CurrentTransaction, Id, metadata, partial_index

requests = sa.Table(
    "requests",
    metadata,
    sa.Column("id", Id, primary_key=True),
    sa.Column("name", sa.Text, nullable=False),
    sa.Column("owner", sa.Text, nullable=False),
    sa.Column("grp", sa.Text, nullable=False),
    sa.Column("priority", sa.Integer, nullable=False),
    # Empty: no agent may take it.
    sa.Column("team", sa.Text, nullable=False, server_default=""),
    sa.Column("campaign", sa.Text, nullable=False, server_default=""),
    sa.Column("state", sa.Text, nullable=False),
    # JSON of the specification as it was accepted. Facts that may change have columns, which prevail.
    sa.Column("specification", sa.Text, nullable=False),
    # JSON lists of sites. The first one empty: nowhere; ["*"]: all sites of the policy.
    sa.Column("sites", sa.Text, nullable=False),
    sa.Column("banned_sites", sa.Text, nullable=False, server_default="[]"),
    # 1: the location of input and parents, or of pile-up, does not restrict the sites.
    sa.Column("trust_input", sa.SmallInteger, nullable=False, server_default="0"),
    sa.Column("trust_pileup", sa.SmallInteger, nullable=False, server_default="0"),
    # Until when new blocks of its input become elements; NULL: only blocks that its intake finds.
    sa.Column("open_until", sa.Float),
    sa.Column("created", sa.Float, nullable=False),
    sa.Column("changed", sa.Float, nullable=False),
    # Raised by each change of priority, lists and state.
    sa.Column("version", sa.Integer, nullable=False, server_default="1"),
    # Why it has this state; empty: no word is needed.
    sa.Column("reason", sa.Text, nullable=False, server_default=""),
    # The request that it resubmits, or is a clone of.
    sa.Column("origin_id", Id),
    # The first request of its chain of resubmissions; NULL: it resubmits none.
    sa.Column("root_id", Id),
    sa.Column("idempotency_key", sa.Text),
    # 1: an abort, a force-complete or a change of lists or priority is not carried out everywhere yet.
    sa.Column("propagating", sa.SmallInteger, nullable=False, server_default="0"),
    # 1: agents get none of its elements, and none of its made jobs are released.
    sa.Column("paused", sa.SmallInteger, nullable=False, server_default="0"),
    sa.UniqueConstraint("owner", "idempotency_key", name="uq_requests_key"),
    sa.Index("ix_requests_state", "state", "id"),
    sa.Index("ix_requests_owner", "owner", "id"),
    partial_index("ix_requests_root", "root_id", where="root_id IS NOT NULL"),
    sqlite_autoincrement=True,
)

# A step consumes the closed blocks of its input data set as they come: the data of a user, or of an earlier step.
request_steps = sa.Table(
    "request_steps",
    metadata,
    sa.Column("request_id", Id, primary_key=True, autoincrement=False),
    sa.Column("position", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("name", sa.Text, nullable=False),
    # Processing, Merge, Cleanup, LogCollect, Harvest or Skim.
    sa.Column("type", sa.Text, nullable=False),
    sa.Column("start_policy", sa.Text, nullable=False),
    # JSON {"algorithm": ..., "parameters": {...}}.
    sa.Column("splitting", sa.Text, nullable=False),
    # NULL: it generates events.
    sa.Column("input_dataset", Id),
    # The position of the step that writes the input; NULL: the input was there before.
    sa.Column("after", sa.Integer),
    # JSON lists of ids of data sets.
    sa.Column("further_inputs", sa.Text, nullable=False, server_default="[]"),
    sa.Column("pileup", sa.Text, nullable=False, server_default="[]"),
    # NULL: it writes no data set.
    sa.Column("output_dataset", Id),
    # The data set of the logs of its jobs; NULL: they are not stored.
    sa.Column("log_dataset", Id),
    # How far intake has come: the `closed_number` of the last block, or the number of events generated.
    sa.Column("taken", sa.BigInteger, nullable=False, server_default="0"),
    # 1: no more elements will come.
    sa.Column("closed", sa.SmallInteger, nullable=False, server_default="0"),
    # 1: all of its elements have ended, and its output data set is closed.
    sa.Column("ended", sa.SmallInteger, nullable=False, server_default="0"),
    sa.Index("ix_request_steps_input", "input_dataset"),
)

request_events = sa.Table(
    "request_events",
    metadata,
    sa.Column("id", Id, primary_key=True),
    sa.Column("request_id", Id, nullable=False),
    sa.Column("at", sa.Float, nullable=False),
    sa.Column("actor", sa.Text, nullable=False),
    sa.Column("kind", sa.Text, nullable=False),
    sa.Column("old", sa.Text, nullable=False, server_default=""),
    sa.Column("new", sa.Text, nullable=False, server_default=""),
    sa.Column("detail", sa.Text, nullable=False, server_default=""),
    # As in `events`.
    sa.Column("xid", sa.BigInteger, nullable=False, server_default=CurrentTransaction()),
    sa.Index("ix_request_events_request", "request_id", "id"),
    sa.Index("ix_request_events_xid", "xid", "id", info=POSTGRESQL_ONLY).ddl_if(dialect="postgresql"),
    sqlite_autoincrement=True,
)
