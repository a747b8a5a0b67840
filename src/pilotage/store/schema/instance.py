"""The instance, its policies, and the state that servers on one database share."""

from __future__ import annotations

import sqlalchemy as sa

from pilotage.store.schema.base import Id, metadata

instance = sa.Table(
    "instance",
    metadata,
    sa.Column("id", sa.Integer, primary_key=True),
    sa.Column("uuid", sa.Text, nullable=False),
    # Raised by a restore. Messages of an earlier incarnation are superseded.
    sa.Column("incarnation", sa.Integer, nullable=False),
    # Written every few seconds. At start the gap to now is the length of the outage.
    sa.Column("alive_at", sa.Float, nullable=False),
    # Ids up to this number are never given again. A restore raises it above all ids given after the backup.
    sa.Column("id_floor", sa.BigInteger, nullable=False, server_default="0"),
    # The use of attempts is in use_buckets up to this time. NULL: the buckets must be rebuilt.
    sa.Column("use_as_of", sa.Float),
    # Fingerprints of the key that signs tokens and of the sandbox folder, which all servers of a database share.
    # Empty: no server has stored them yet.
    sa.Column("signing_key", sa.Text, nullable=False, server_default=""),
    sa.Column("sandboxes", sa.Text, nullable=False, server_default=""),
)

policies = sa.Table(
    "policies",
    metadata,
    sa.Column("version", Id, primary_key=True),
    sa.Column("text", sa.Text, nullable=False),
    sa.Column("applied_at", sa.Float, nullable=False),
    sa.Column("applied_by", sa.Text, nullable=False),
    sa.Column("reason", sa.Text, nullable=False),
)

# The servers that use this database now. The others delete the row of a server that they evict.
servers = sa.Table(
    "servers",
    metadata,
    # A new name at each start.
    sa.Column("name", sa.Text, primary_key=True),
    sa.Column("host", sa.Text, nullable=False),
    sa.Column("url", sa.Text, nullable=False),
    sa.Column("version", sa.Text, nullable=False),
    sa.Column("started", sa.Float, nullable=False),
    sa.Column("alive_at", sa.Float, nullable=False),
    # The policy version in force on this server.
    sa.Column("policy_version", Id, nullable=False),
    # The address for pilots, and the fingerprints of the server's certificates, separated by commas.
    sa.Column("pilot_url", sa.Text, nullable=False, server_default=""),
    sa.Column("fingerprints", sa.Text, nullable=False, server_default=""),
    # 1: it records its messages (`up --record`), and must stay the only one.
    sa.Column("recorded", sa.SmallInteger, nullable=False, server_default="0"),
)

# Locks of duties (core/duties.py): one server at a time runs each duty.
duties = sa.Table(
    "duties",
    metadata,
    sa.Column("name", sa.Text, primary_key=True),
    # The server that has the lock; empty: none.
    sa.Column("holder", sa.Text, nullable=False, server_default=""),
    # Raised by each change of the holder.
    sa.Column("epoch", sa.BigInteger, nullable=False, server_default="0"),
    sa.Column("until", sa.Float, nullable=False, server_default="0"),
)

# Counters that only rise: ids given to servers in blocks, and the position up to which change rows are deleted.
counters = sa.Table(
    "counters",
    metadata,
    sa.Column("name", sa.Text, primary_key=True),
    sa.Column("last", sa.BigInteger, nullable=False),
)

# Change rows for the other servers, one for each transaction that changes state they keep in memory.
changes = sa.Table(
    "changes",
    metadata,
    sa.Column("id", Id, primary_key=True),
    # The transaction's id. Readers go in this order, up to the first transaction that may still be open.
    sa.Column("xid", sa.BigInteger, nullable=False),
    sa.Column("at", sa.Float, nullable=False),
    sa.Column("server", sa.Text, nullable=False),
    # JSON.
    sa.Column("payload", sa.Text, nullable=False),
    sa.Index("ix_changes_xid", "xid"),
)

# Limits that several servers share (core/queues/limit_leases.py): the unallocated part of each limit.
limit_states = sa.Table(
    "limit_states",
    metadata,
    # JSON list of site, CE, attribute and value.
    sa.Column("limit_key", sa.Text, primary_key=True),
    # The limit that `free` was computed with. NULL: the running jobs must be counted first.
    sa.Column("running", sa.Integer),
    sa.Column("free", sa.Integer, nullable=False),
    sa.Column("starts", sa.Float, nullable=False),
    sa.Column("since", sa.Float, nullable=False),
)

# The part of each shared limit that each server has.
limit_blocks = sa.Table(
    "limit_blocks",
    metadata,
    sa.Column("limit_key", sa.Text, primary_key=True),
    sa.Column("server", sa.Text, primary_key=True),
    sa.Column("free", sa.Integer, nullable=False, server_default="0"),
    sa.Column("starts", sa.Integer, nullable=False, server_default="0"),
    sa.Column("last_start", sa.Float, nullable=False, server_default="0"),
    sa.Column("wants", sa.SmallInteger, nullable=False, server_default="0"),
)
