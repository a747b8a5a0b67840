"""The work queue: elements, the jobs made of them, the agents that split them, and the states of sites."""

from __future__ import annotations

import sqlalchemy as sa

from pilotage.store.schema.base import Id, metadata, partial_index

elements = sa.Table(
    "elements",
    metadata,
    sa.Column("id", Id, primary_key=True),
    sa.Column("request_id", Id, nullable=False),
    # The position of the request's step.
    sa.Column("step", sa.Integer, nullable=False),
    # The identity: the same piece of a request is never stored twice.
    sa.Column("digest", sa.Text, nullable=False, unique=True),
    sa.Column("state", sa.Text, nullable=False),
    # Estimated; the number made once it is split.
    sa.Column("jobs", sa.Integer, nullable=False),
    sa.Column("events", sa.BigInteger, nullable=False, server_default="0"),
    sa.Column("files", sa.Integer, nullable=False, server_default="0"),
    sa.Column("size", sa.BigInteger, nullable=False, server_default="0"),
    # JSON list of the ids of its input blocks.
    sa.Column("blocks", sa.Text, nullable=False, server_default="[]"),
    # JSON of a mask that restricts it; empty: the whole of its blocks.
    sa.Column("mask", sa.Text, nullable=False, server_default=""),
    # The sites of its input (see location_sets); the lists of the request are joined where it is decided.
    sa.Column("location_set", Id, nullable=False),
    sa.Column("created", sa.Float, nullable=False),
    sa.Column("changed", sa.Float, nullable=False),
    # The agent that has it, or made its jobs; NULL: none.
    sa.Column("agent_id", Id),
    # The site for which it was admitted; empty: none.
    sa.Column("site", sa.Text, nullable=False, server_default=""),
    # The agent that got the present epoch. It stays when the element is free again; NULL: none got it.
    sa.Column("offered_to", Id),
    # The fence of the hand-over to agents.
    sa.Column("epoch", sa.Integer, nullable=False, server_default="0"),
    sa.Column("finished_epoch", sa.Integer, nullable=False, server_default="0"),
    sa.Column("finished_digest", sa.Text, nullable=False, server_default=""),
    sa.Column("reason", sa.Text, nullable=False, server_default=""),
    # 1: it failed since its agent could not split it. A part of it may have jobs.
    sa.Column("unsplit", sa.SmallInteger, nullable=False, server_default="0"),
    # Its jobs that have ended for good, and the events of jobs that are done.
    sa.Column("jobs_done", sa.Integer, nullable=False, server_default="0"),
    sa.Column("jobs_failed", sa.Integer, nullable=False, server_default="0"),
    sa.Column("jobs_canceled", sa.Integer, nullable=False, server_default="0"),
    sa.Column("events_done", sa.BigInteger, nullable=False, server_default="0"),
    sa.Index("ix_elements_request", "request_id", "step", "state"),
    partial_index(
        "ix_elements_available", "request_id", "step", "location_set", "id", where="state = 'Available'"
    ),
    partial_index("ix_elements_agent", "agent_id", "state", where="agent_id IS NOT NULL"),
    sqlite_autoincrement=True,
)

# The jobs of elements, before, while and after they are in the pool. A row may have several jobs, one after the other.
element_jobs = sa.Table(
    "element_jobs",
    metadata,
    sa.Column("id", Id, primary_key=True),
    sa.Column("element_id", Id, nullable=False),
    # The element's epoch under which it was made.
    sa.Column("element_epoch", sa.Integer, nullable=False),
    # SHA-256 of the canonical mask: one piece of an element is never made into two rows.
    sa.Column("digest", sa.Text, nullable=False),
    # JSON of the mask.
    sa.Column("mask", sa.Text, nullable=False),
    sa.Column("request_id", Id, nullable=False),
    sa.Column("step", sa.Integer, nullable=False),
    sa.Column("state", sa.Text, nullable=False),
    sa.Column("location_set", Id, nullable=False),
    # The site at which it counts until it runs elsewhere.
    sa.Column("site", sa.Text, nullable=False, server_default=""),
    sa.Column("agent_id", Id),
    sa.Column("events", sa.BigInteger, nullable=False, server_default="0"),
    sa.Column("files", sa.Integer, nullable=False, server_default="0"),
    sa.Column("size", sa.BigInteger, nullable=False, server_default="0"),
    sa.Column("made", sa.Float, nullable=False),
    # Failed tries, tries in the pool included; a cooloff ends at `not_before`.
    sa.Column("retries", sa.Integer, nullable=False, server_default="0"),
    # JSON list of sites where it is not tried again, since its input could not be read there.
    sa.Column("avoided_sites", sa.Text, nullable=False, server_default="[]"),
    sa.Column("not_before", sa.Float),
    # Its present or last job in the pool.
    sa.Column("job_id", Id),
    # Of the last try.
    sa.Column("ended", sa.Float),
    sa.Column("exit_code", sa.Integer),
    sa.Column("failure", sa.Text, nullable=False, server_default=""),
    sa.Column("message", sa.Text, nullable=False, server_default=""),
    sa.UniqueConstraint("element_id", "digest", name="uq_element_jobs_digest"),
    partial_index(
        "ix_element_jobs_made",
        "request_id",
        "step",
        "location_set",
        "agent_id",
        "avoided_sites",
        "id",
        where="state = 'made'",
    ),
    partial_index("ix_element_jobs_cooloff", "not_before", where="state = 'cooloff'"),
    partial_index("ix_element_jobs_job", "job_id", where="job_id IS NOT NULL"),
    # Has all columns that the progress of a request is counted by: no row is read for it.
    sa.Index(
        *("ix_element_jobs_request", "request_id", "state", "step", "site", "events", "files", "ended"),
    ),
    partial_index(
        *("ix_element_jobs_failed", "request_id", "step", "exit_code", "failure", "state"),
        where="failure <> '' OR state = 'exhausted'",
    ),
    sqlite_autoincrement=True,
)

# Ends of such jobs, appended in the transaction of the end, and deleted when the roll-up has used them.
job_outcomes = sa.Table(
    "job_outcomes",
    metadata,
    sa.Column("id", Id, primary_key=True),
    sa.Column("element_job_id", Id, nullable=False),
    sa.Column("job_id", Id, nullable=False),
    sa.Column("state", sa.Text, nullable=False),
    sa.Column("at", sa.Float, nullable=False),
    sa.Column("exit_code", sa.Integer),
    sa.Column("failure", sa.Text, nullable=False, server_default=""),
    sa.Column("message", sa.Text, nullable=False, server_default=""),
    # Seconds that its last attempt ran; 0: not known.
    sa.Column("wall", sa.Float, nullable=False, server_default="0"),
    # Its failed tries in the pool.
    sa.Column("tries", sa.Integer, nullable=False, server_default="1"),
    # The site of the pilot that ended it; empty: none did.
    sa.Column("site", sa.Text, nullable=False, server_default=""),
    sqlite_autoincrement=True,
)

agents = sa.Table(
    "agents",
    metadata,
    sa.Column("id", Id, primary_key=True),
    sa.Column("name", sa.Text, nullable=False, unique=True),
    sa.Column("team", sa.Text, nullable=False),
    # The user whose token it uses.
    sa.Column("owner", sa.Text, nullable=False),
    # Of the process: another process with this name supersedes it. Then, one a line, of the superseded ones.
    sa.Column("nonce", sa.Text, nullable=False),
    sa.Column("version", sa.Text, nullable=False, server_default=""),
    sa.Column("host", sa.Text, nullable=False, server_default=""),
    sa.Column("joined", sa.Float, nullable=False),
    sa.Column("seen", sa.Float, nullable=False),
    sa.Column("lease_until", sa.Float, nullable=False),
    # 1: it takes no more elements.
    sa.Column("draining", sa.SmallInteger, nullable=False, server_default="0"),
    # When it began to drain, and its unfinished jobs then. NULL: it does not drain.
    sa.Column("drain_since", sa.Float),
    sa.Column("drain_jobs", sa.Integer, nullable=False, server_default="0"),
    # NULL: it is there.
    sa.Column("ended", sa.Float),
    # The number of its last pull, and the ids and epochs that were the answer, to repeat a lost one.
    sa.Column("pull_number", sa.Integer, nullable=False, server_default="0"),
    sa.Column("pull_answer", sa.Text, nullable=False, server_default="[]"),
    sqlite_autoincrement=True,
)

site_states = sa.Table(
    "site_states",
    metadata,
    sa.Column("site", sa.Text, primary_key=True),
    # normal, drain or down.
    sa.Column("state", sa.Text, nullable=False),
    sa.Column("changed_by", sa.Text, nullable=False),
    sa.Column("reason", sa.Text, nullable=False, server_default=""),
    sa.Column("since", sa.Float, nullable=False),
    # When it becomes normal again by itself; NULL: never.
    sa.Column("until", sa.Float),
)
