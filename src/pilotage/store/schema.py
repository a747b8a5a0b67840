"""The tables: one schema for every database. Instants are seconds since 1970, memory is MB (2^20 bytes).

Migrations (store/migrations) lead here from every earlier version; a test holds the two equal.
"""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from sqlalchemy.ext.compiler import compiles

metadata = sa.MetaData()


@compiles(sa.PrimaryKeyConstraint, "postgresql")
def _with_what_it_is_divided_by(key: sa.PrimaryKeyConstraint, compiler: Any, **options: Any) -> str:
    """PostgreSQL wants the column in it that a table is divided by."""
    text: str = compiler.visit_primary_key_constraint(key, **options)
    column = None if key.table is None else key.table.info.get("partition_column")
    return text if column is None else f"{text.removesuffix(')')}, {column})"


# SQLite makes only an INTEGER PRIMARY KEY its row id.
Id = sa.BigInteger().with_variant(sa.Integer(), "sqlite")

instance = sa.Table(
    "instance",
    metadata,
    sa.Column("id", sa.Integer, primary_key=True),
    sa.Column("uuid", sa.Text, nullable=False),
    # Raised by restore: messages of an earlier one are superseded.
    sa.Column("incarnation", sa.Integer, nullable=False),
    # Written every few seconds; the gap at start is the length of an outage.
    sa.Column("alive_at", sa.Float, nullable=False),
    # No id at or below it is given again: raised by restore above all that were given after the backup.
    sa.Column("id_floor", sa.BigInteger, nullable=False, server_default="0"),
    # Until when the use of attempts stands in use_buckets; NULL: they are to be made anew.
    sa.Column("use_as_of", sa.Float),
    # What all servers of one database have in common, told by its fingerprint: the key that signs tokens, and the
    # folder of the sandboxes. Empty: no server has said it yet.
    sa.Column("signing_key", sa.Text, nullable=False, server_default=""),
    sa.Column("sandboxes", sa.Text, nullable=False, server_default=""),
)

# The servers that use this database now. A row that is gone is a server that the others have given up.
servers = sa.Table(
    "servers",
    metadata,
    # Another one at each start.
    sa.Column("name", sa.Text, primary_key=True),
    sa.Column("host", sa.Text, nullable=False),
    sa.Column("url", sa.Text, nullable=False),
    sa.Column("version", sa.Text, nullable=False),
    sa.Column("started", sa.Float, nullable=False),
    sa.Column("alive_at", sa.Float, nullable=False),
    # The version of the policy that it matches by.
    sa.Column("policy_version", Id, nullable=False),
)

# Locks of duties (core/duties.py): each is carried out by one server at a time.
duties = sa.Table(
    "duties",
    metadata,
    sa.Column("name", sa.Text, primary_key=True),
    # A server; empty: nobody.
    sa.Column("holder", sa.Text, nullable=False, server_default=""),
    # Raised by every take-over.
    sa.Column("epoch", sa.BigInteger, nullable=False, server_default="0"),
    sa.Column("until", sa.Float, nullable=False, server_default="0"),
)

# Numbers that only rise: the ids that servers have been given in blocks, how far change rows have been deleted.
counters = sa.Table(
    "counters",
    metadata,
    sa.Column("name", sa.Text, primary_key=True),
    sa.Column("last", sa.BigInteger, nullable=False),
)

# What one server tells the others, a row for each transaction that changes what they keep in memory.
changes = sa.Table(
    "changes",
    metadata,
    sa.Column("id", Id, primary_key=True),
    # The transaction's id: what is read is in the order of it, up to the first that may still be open.
    sa.Column("xid", sa.BigInteger, nullable=False),
    sa.Column("at", sa.Float, nullable=False),
    sa.Column("server", sa.Text, nullable=False),
    # JSON.
    sa.Column("payload", sa.Text, nullable=False),
    sa.Index("ix_changes_xid", "xid"),
)

# Limits that several servers share (core/queues/limit_leases.py): what no server has of each ...
limit_states = sa.Table(
    "limit_states",
    metadata,
    # JSON list of site, CE, attribute and value.
    sa.Column("limit_key", sa.Text, primary_key=True),
    # The number that `free` was reckoned with; NULL: to be counted.
    sa.Column("running", sa.Integer),
    sa.Column("free", sa.Integer, nullable=False),
    sa.Column("starts", sa.Float, nullable=False),
    sa.Column("since", sa.Float, nullable=False),
)

# ... and what each server has.
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

policies = sa.Table(
    "policies",
    metadata,
    sa.Column("version", Id, primary_key=True),
    sa.Column("text", sa.Text, nullable=False),
    sa.Column("applied_at", sa.Float, nullable=False),
    sa.Column("applied_by", sa.Text, nullable=False),
    sa.Column("reason", sa.Text, nullable=False),
)

submissions = sa.Table(
    "submissions",
    metadata,
    sa.Column("id", Id, primary_key=True),
    sa.Column("owner", sa.Text, nullable=False),
    sa.Column("grp", sa.Text, nullable=False),
    sa.Column("idempotency_key", sa.Text),
    sa.Column("submitted", sa.Float, nullable=False),
    # What all jobs of it share, stored once: JSON of the job description, its inputs, the parameters' names.
    sa.Column("description", sa.Text, nullable=False),
    sa.Column("inputs", sa.Text, nullable=False),
    sa.Column("names", sa.Text, nullable=False),
    sa.Column("job_name", sa.Text, nullable=False),
    sa.Column("job_group", sa.Text, nullable=False),
    sa.Column("job_type", sa.Text, nullable=False),
    sa.Column("queue_id", Id, nullable=False),
    sa.Column("first_job", Id, nullable=False),
    sa.Column("count", sa.Integer, nullable=False),
    sa.Column("warnings", sa.Text, nullable=False),
    # open: more rows may come | staged: its rows are being stored, it is not accepted yet | closed.
    sa.Column("state", sa.Text, nullable=False, server_default="closed"),
    # When something came last.
    sa.Column("touched", sa.Float, nullable=False, server_default="0"),
    # How many jobs it was said to have at most; their ids are reserved. NULL: not said.
    sa.Column("expected", sa.BigInteger),
    # Jobs of it that were let go for their age.
    sa.Column("forgotten", sa.Integer, nullable=False, server_default="0"),
    sa.UniqueConstraint("owner", "idempotency_key", name="uq_submissions_key"),
    sa.Index(
        "ix_submissions_open",
        "touched",
        sqlite_where=sa.text("state <> 'closed'"),
        postgresql_where=sa.text("state <> 'closed'"),
    ),
)

# The parameter rows of a submission, as they were accepted: so many at a time.
submission_chunks = sa.Table(
    "submission_chunks",
    metadata,
    sa.Column("submission_id", Id, primary_key=True, autoincrement=False),
    sa.Column("number", sa.Integer, primary_key=True, autoincrement=False),
    # SHA-256 of the rows; empty: not known.
    sa.Column("digest", sa.Text, nullable=False),
    sa.Column("first_job", Id, nullable=False),
    sa.Column("count", sa.Integer, nullable=False),
    # Jobs made of it so far, in the order of their ids.
    sa.Column("made", sa.Integer, nullable=False),
    sa.Column("accepted", sa.Float, nullable=False),
    sa.Index(
        "ix_submission_chunks_unmade",
        "submission_id",
        sqlite_where=sa.text("made < count"),
        postgresql_where=sa.text("made < count"),
    ),
)

# JSON list of the rows of a chunk until all its jobs are made: what is accepted is whole after a crash.
pending_rows = sa.Table(
    "pending_rows",
    metadata,
    sa.Column("submission_id", Id, primary_key=True, autoincrement=False),
    sa.Column("number", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("rows", sa.Text, nullable=False),
)

# The input files that the rows of a chunk name: each job has its own.
chunk_files = sa.Table(
    "chunk_files",
    metadata,
    sa.Column("submission_id", Id, primary_key=True, autoincrement=False),
    sa.Column("number", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("digest", sa.Text, primary_key=True),
    sa.Index("ix_chunk_files_digest", "digest"),
)

uploads = sa.Table(
    "uploads",
    metadata,
    sa.Column("owner", sa.Text, primary_key=True),
    sa.Column("digest", sa.Text, primary_key=True),
    sa.Column("size", sa.BigInteger, nullable=False),
    sa.Column("uploaded", sa.Float, nullable=False),
)

queues = sa.Table(
    "queues",
    metadata,
    sa.Column("id", Id, primary_key=True),
    sa.Column("digest", sa.Text, nullable=False, unique=True),
    sa.Column("owner", sa.Text, nullable=False),
    sa.Column("grp", sa.Text, nullable=False),
    sa.Column("identity", sa.Text, nullable=False),
    sa.Column("created", sa.Float, nullable=False),
    # When a cycle first found it without jobs; it goes a day later. NULL: it has some, or nobody looked.
    sa.Column("empty_since", sa.Float),
    # An id is never given twice: old jobs point to queues that are gone.
    sqlite_autoincrement=True,
)

jobs = sa.Table(
    "jobs",
    metadata,
    sa.Column("id", Id, primary_key=True),
    sa.Column("submission_id", Id, nullable=False),
    sa.Column("queue_id", Id, nullable=False),
    sa.Column("state", sa.Text, nullable=False),
    sa.Column("user_priority", sa.SmallInteger, nullable=False),
    # JSON list of this job's parameter values; NULL: none.
    sa.Column("parameters", sa.Text),
    sa.Column("epoch", sa.Integer, nullable=False, server_default="0"),
    sa.Column("attempt", sa.Integer, nullable=False, server_default="0"),
    # Failed tries, those of the payload's own making apart: each kind has its own limit.
    sa.Column("failures", sa.Integer, nullable=False, server_default="0"),
    sa.Column("own_failures", sa.Integer, nullable=False, server_default="0"),
    sa.Column("pilot_id", Id),
    sa.Column("take_number", sa.Integer),
    sa.Column("finished_epoch", sa.Integer, nullable=False, server_default="0"),
    sa.Column("finished_digest", sa.Text, nullable=False, server_default=""),
    sa.Column("reason", sa.Text, nullable=False, server_default=""),
    sa.Column("exit_code", sa.Integer),
    sa.Column("submitted", sa.Float, nullable=False),
    # Matched: when it was offered. Held: when it was confirmed.
    sa.Column("started", sa.Float),
    sa.Column("ended", sa.Float),
    # Rescheduled: when it goes back to its queue.
    sa.Column("not_before", sa.Float),
    sa.Column("last_event", Id, nullable=False, server_default="0"),
    # Its name where it has one of its own; NULL: that of the submission.
    sa.Column("name", sa.Text),
    # A match changes no index: a random page for each would cost more than the job's own row.
    sa.Index("ix_jobs_queue", "queue_id", "user_priority", "id"),
    sa.Index(
        "ix_jobs_not_before",
        "not_before",
        sqlite_where=sa.text("not_before IS NOT NULL"),
        postgresql_where=sa.text("not_before IS NOT NULL"),
    ),
    sa.Index("ix_jobs_submission", "submission_id"),
    # The next to leave for history; final jobs alone have an end.
    sa.Index(
        "ix_jobs_ended",
        "ended",
        sqlite_where=sa.text("ended IS NOT NULL"),
        postgresql_where=sa.text("ended IS NOT NULL"),
    ),
)

# Final jobs that ended some time ago: what `jobs` had of them, and beside it what lists show and searches ask for, as
# of when the job came here. On PostgreSQL a partition for each month of their end (store/tables/partitions.py).
history = sa.Table(
    "history",
    metadata,
    sa.Column("id", Id, primary_key=True, autoincrement=False),
    sa.Column("submission_id", Id, nullable=False),
    sa.Column("queue_id", Id, nullable=False),
    sa.Column("state", sa.Text, nullable=False),
    sa.Column("user_priority", sa.SmallInteger, nullable=False),
    sa.Column("parameters", sa.Text),
    sa.Column("epoch", sa.Integer, nullable=False),
    sa.Column("attempt", sa.Integer, nullable=False),
    sa.Column("failures", sa.Integer, nullable=False),
    sa.Column("own_failures", sa.Integer, nullable=False),
    sa.Column("finished_epoch", sa.Integer, nullable=False),
    sa.Column("finished_digest", sa.Text, nullable=False),
    sa.Column("reason", sa.Text, nullable=False),
    sa.Column("exit_code", sa.Integer),
    sa.Column("submitted", sa.Float, nullable=False),
    sa.Column("ended", sa.Float, nullable=False),
    sa.Column("last_event", Id, nullable=False),
    sa.Column("owner", sa.Text, nullable=False),
    sa.Column("grp", sa.Text, nullable=False),
    sa.Column("job_name", sa.Text, nullable=False),
    sa.Column("job_group", sa.Text, nullable=False),
    sa.Column("job_type", sa.Text, nullable=False),
    # Of its last try.
    sa.Column("started", sa.Float),
    sa.Column("pilot_id", Id),
    sa.Column("site", sa.Text, nullable=False),
    sa.Column("ce", sa.Text, nullable=False),
    sa.Column("hostname", sa.Text, nullable=False),
    # Lists are in the order of ids, by one state after the other where that is no condition of its own.
    sa.Index("ix_history_owner", "owner", "state", "id"),
    sa.Index("ix_history_grp", "grp", "state", "id"),
    sa.Index("ix_history_state", "state", "id"),
    sa.Index("ix_history_submission", "submission_id", "id"),
    sa.Index(
        "ix_history_job_group",
        "job_group",
        "id",
        sqlite_where=sa.text("job_group <> ''"),
        postgresql_where=sa.text("job_group <> ''"),
    ),
    sa.Index(
        "ix_history_job_name",
        "job_name",
        "id",
        sqlite_where=sa.text("job_name <> ''"),
        postgresql_where=sa.text("job_name <> ''"),
    ),
    sa.Index("ix_history_ended", "ended"),
    info={"partition_column": "ended"},
    postgresql_partition_by="RANGE (ended)",
)

# How many jobs history has, so that nobody counts millions of rows. `month`: of their end, such as 202611 (UTC).
history_counts = sa.Table(
    "history_counts",
    metadata,
    sa.Column("month", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("owner", sa.Text, primary_key=True),
    sa.Column("grp", sa.Text, primary_key=True),
    sa.Column("state", sa.Text, primary_key=True),
    sa.Column("jobs", sa.BigInteger, nullable=False),
)

# How far the retention of each table has come.
retention = sa.Table(
    "retention",
    metadata,
    sa.Column("name", sa.Text, primary_key=True),
    # What ended before has been seen to; of a table without such an instant NULL.
    sa.Column("until", sa.Float),
    sa.Column("ran", sa.Float, nullable=False),
    # Rows moved or deleted since the beginning.
    sa.Column("total", sa.BigInteger, nullable=False),
)

# Files whose rows are gone: written with the rows' end, deleted when the files are.
removals = sa.Table(
    "removals",
    metadata,
    sa.Column("id", Id, primary_key=True),
    # "jobs": JSON [job ...]; "tries": [[job, highest epoch] ...]; "pilots": [stamp ...]; "inputs": [digest ...].
    sa.Column("kind", sa.Text, nullable=False),
    sa.Column("names", sa.Text, nullable=False),
)

attempts = sa.Table(
    "attempts",
    metadata,
    sa.Column("job_id", Id, primary_key=True),
    sa.Column("epoch", sa.Integer, primary_key=True),
    sa.Column("attempt", sa.Integer, nullable=False),
    sa.Column("pilot_id", Id, nullable=False),
    sa.Column("started", sa.Float, nullable=False),
    sa.Column("ended", sa.Float),
    # NULL while it runs; "applied", "retried", "lease over", "released", "killed".
    sa.Column("outcome", sa.Text),
    sa.Column("exit_code", sa.Integer),
    sa.Column("failure", sa.Text, nullable=False, server_default=""),
    sa.Column("message", sa.Text, nullable=False, server_default=""),
    sa.Column("wall", sa.Float, nullable=False, server_default="0"),
    sa.Column("cpu", sa.Float, nullable=False, server_default="0"),
    sa.Column("max_rss", sa.Integer, nullable=False, server_default="0"),
    sa.Column("processors", sa.Integer, nullable=False, server_default="1"),
    # Whose use it is, and where: jobs, pilots and the policy's CEs go, the use of a try stays.
    sa.Column("owner", sa.Text, nullable=False, server_default=""),
    sa.Column("grp", sa.Text, nullable=False, server_default=""),
    sa.Column("site", sa.Text, nullable=False, server_default=""),
    # Reference cores per core.
    sa.Column("cpu_power", sa.Float, nullable=False, server_default="1"),
    sa.Index("ix_attempts_ended", "ended"),
)

results = sa.Table(
    "results",
    metadata,
    sa.Column("job_id", Id, primary_key=True),
    sa.Column("epoch", sa.Integer, primary_key=True),
    # Small standard output and error; NULL: a file of the output sandbox, or none.
    sa.Column("stdout", sa.LargeBinary),
    sa.Column("stderr", sa.LargeBinary),
    # JSON lists: [name, size] of the uploaded files; patterns that matched nothing.
    sa.Column("outputs", sa.Text, nullable=False, server_default="[]"),
    sa.Column("missing", sa.Text, nullable=False, server_default="[]"),
    # JSON list of [name, reason]: files that matched a pattern and were not stored.
    sa.Column("refused", sa.Text, nullable=False, server_default="[]"),
)

pilots = sa.Table(
    "pilots",
    metadata,
    sa.Column("id", Id, primary_key=True),
    # The stamp of the hand-over to the batch system: (submission of pilots, index).
    sa.Column("stamp", sa.Text, nullable=False, unique=True),
    sa.Column("secret_hash", sa.Text, nullable=False),
    sa.Column("idx", sa.Integer, nullable=False),
    sa.Column("nonce", sa.Text),
    sa.Column("token_hash", sa.Text, unique=True),
    sa.Column("state", sa.Text, nullable=False),
    sa.Column("site", sa.Text, nullable=False),
    sa.Column("ce", sa.Text, nullable=False),
    # Whom the policy of its CE, or its first match, binds it to.
    sa.Column("only_owner", sa.Text),
    sa.Column("pilot_type", sa.Text, nullable=False),
    sa.Column("owner", sa.Text, nullable=False, server_default=""),
    sa.Column("grp", sa.Text, nullable=False, server_default=""),
    sa.Column("batch_id", sa.Text, nullable=False, server_default=""),
    sa.Column("hostname", sa.Text, nullable=False, server_default=""),
    sa.Column("version", sa.Text, nullable=False, server_default=""),
    sa.Column("processors", sa.Integer, nullable=False),
    sa.Column("memory", sa.Integer, nullable=False),
    sa.Column("lease_until", sa.Float),
    # The last take that was answered with an offer, and when.
    sa.Column("take_number", sa.Integer, nullable=False, server_default="0"),
    sa.Column("taken_at", sa.Float),
    # JSON list of the jobs that it was offered: all that it has are there, and some that it has no longer.
    sa.Column("jobs", sa.Text, nullable=False, server_default="[]"),
    sa.Column("finished", sa.Integer, nullable=False, server_default="0"),
    sa.Column("submitted", sa.Float, nullable=False),
    sa.Column("started", sa.Float),
    sa.Column("ended", sa.Float),
    # "", "drain" or "cancel": what it is told at its next contact.
    sa.Column("leave", sa.Text, nullable=False, server_default=""),
    sa.Column("reason", sa.Text, nullable=False, server_default=""),
    # The server that it last spoke to.
    sa.Column("server", sa.Text, nullable=False, server_default=""),
    sa.Index(
        "ix_pilots_live",
        "ce",
        sqlite_where=sa.text("ended IS NULL"),
        postgresql_where=sa.text("ended IS NULL"),
    ),
)

# On PostgreSQL a partition for each month.
events = sa.Table(
    "events",
    metadata,
    sa.Column("id", Id, primary_key=True, autoincrement=False),
    sa.Column("at", sa.Float, nullable=False),
    sa.Column("kind", sa.Text, nullable=False),
    # user:NAME, pilot:ID, server, or "pilots": then each job stands there with its own.
    sa.Column("actor", sa.Text, nullable=False),
    sa.Column("old", sa.Text, nullable=False),
    sa.Column("new", sa.Text, nullable=False),
    sa.Column("detail", sa.Text, nullable=False),
    # What it is about: JSON [[job, epoch, the job's previous event, pilot?] ...]. A new submission is [first, count];
    # an event of a pilot or of the policy has none.
    sa.Column("jobs", sa.Text, nullable=False),
    info={"partition_column": "at"},
    postgresql_partition_by="RANGE (at)",
)

# Times in which the server was down, or by which its clock stepped forward.
outages = sa.Table(
    "outages",
    metadata,
    sa.Column("id", Id, primary_key=True),
    sa.Column("down", sa.Float, nullable=False),
    sa.Column("up", sa.Float, nullable=False),
)

# A cache of the attempts' intervals (core/shares/use.py).
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
    # Seconds: a minute, an hour or a day; from when.
    sa.Column("span", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("start", sa.BigInteger, primary_key=True, autoincrement=False),
    # Arrays of one length, little-endian: places of entities (int64), seconds of jobs and of cores (float64).
    sa.Column("places", sa.LargeBinary, nullable=False),
    sa.Column("jobs", sa.LargeBinary, nullable=False),
    sa.Column("cores", sa.LargeBinary, nullable=False),
)

# What the correctors carry from one correction to the next, and when the last one was: one row.
corrections = sa.Table(
    "corrections",
    metadata,
    sa.Column("id", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("at", sa.Float, nullable=False),
    # JSON list of [corrector, instance, slice, entity, correction].
    sa.Column("memory", sa.Text, nullable=False),
    # JSON of the factors in force and of what they were made of; empty: they are drawn up anew.
    sa.Column("found", sa.Text, nullable=False, server_default=""),
)

# What each queue waited for, from when on; "" when nothing waited in it any more.
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
