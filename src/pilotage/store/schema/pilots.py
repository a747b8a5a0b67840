"""Pilots."""

from __future__ import annotations

import sqlalchemy as sa

from pilotage.store.schema.base import Id, metadata, partial_index

UNBOOKED = "cores_until IS NOT NULL AND (booked_until IS NULL OR booked_until < cores_until)"
"""Pilots that have ended and whose core-seconds are not all booked."""

pilots = sa.Table(
    "pilots",
    metadata,
    sa.Column("id", Id, primary_key=True),
    # Identifies the pilot in the batch system: (submission of pilots, index).
    sa.Column("stamp", sa.Text, nullable=False, unique=True),
    sa.Column("secret_hash", sa.Text, nullable=False),
    sa.Column("idx", sa.Integer, nullable=False),
    # The nonce of its program; then, one a line, of all programs that it had before.
    sa.Column("nonce", sa.Text),
    sa.Column("token_hash", sa.Text, unique=True),
    sa.Column("state", sa.Text, nullable=False),
    sa.Column("site", sa.Text, nullable=False),
    sa.Column("ce", sa.Text, nullable=False),
    # The only owner that the pilot serves, set by the policy of its CE or by its first match.
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
    # The last take that was answered with an offer, and its time.
    sa.Column("take_number", sa.Integer, nullable=False, server_default="0"),
    sa.Column("taken_at", sa.Float),
    # JSON list of offered jobs: a superset of the jobs that the pilot has.
    sa.Column("jobs", sa.Text, nullable=False, server_default="[]"),
    sa.Column("finished", sa.Integer, nullable=False, server_default="0"),
    sa.Column("submitted", sa.Float, nullable=False),
    sa.Column("started", sa.Float),
    sa.Column("ended", sa.Float),
    # The order for the pilot's next contact: "", "drain" or "cancel".
    sa.Column("leave", sa.Text, nullable=False, server_default=""),
    sa.Column("reason", sa.Text, nullable=False, server_default=""),
    # The server of the pilot's last contact.
    sa.Column("server", sa.Text, nullable=False, server_default=""),
    # The end of its own output, sent when it left. Only where the server cannot read the batch system's file.
    sa.Column("log", sa.Text, nullable=False, server_default=""),
    # Seconds of wall time that the batch system was asked for; 0: the wall time in the policy.
    sa.Column("wall", sa.Float, nullable=False, server_default="0"),
    # When its batch job had its cores. Both are NULL until known.
    sa.Column("cores_from", sa.Float),
    sa.Column("cores_until", sa.Float),
    # Its last sign of life before it ended without a word, and its return.
    sa.Column("silent_from", sa.Float),
    sa.Column("silent_until", sa.Float),
    # Its core-seconds before this instant are in `costs`.
    sa.Column("booked_until", sa.Float),
    # Its booked core-seconds, and the payload among them.
    sa.Column("core_seconds", sa.Float, nullable=False, server_default="0"),
    sa.Column("payload_core_seconds", sa.Float, nullable=False, server_default="0"),
    # Seconds by which its node's clock was ahead of the server's when it called home; NULL: it did not tell.
    sa.Column("clock_offset", sa.Float),
    # The task queue that it was submitted for, which may have gone since; it may serve others.
    sa.Column("queue_id", Id),
    # Since when complete listings lack its batch job, or its last sign of life since then; NULL: the last has it.
    sa.Column("absent_since", sa.Float),
    sa.Index("ix_pilots_hostname", "hostname", "started"),
    sa.Index("ix_pilots_batch_id", "batch_id"),
    partial_index("ix_pilots_live", "ce", "id", where="ended IS NULL"),
    # Counts waiting and running pilots by the queue that they were submitted for.
    partial_index(
        "ix_pilots_queue",
        *("queue_id", "started", "ce", "processors", "memory", "submitted"),
        where="ended IS NULL",
    ),
    # Finds a pilot that calls home.
    sa.Index("ix_pilots_secret", "secret_hash", "idx"),
    # Finds leases that are over.
    partial_index("ix_pilots_lease", "lease_until", where="ended IS NULL"),
    partial_index("ix_pilots_leaving", "ce", "leave", where="ended IS NULL AND leave <> ''"),
    partial_index("ix_pilots_unbooked", "id", where=UNBOOKED),
)

# Core-seconds of pilots by CE, hour (its start, in seconds since 1970), owner and group.
costs = sa.Table(
    "costs",
    metadata,
    sa.Column("ce", sa.Text, primary_key=True),
    sa.Column("hour", sa.BigInteger, primary_key=True, autoincrement=False),
    # Of the attempts; of time without an attempt: the owner that the pilot was bound to, or empty.
    sa.Column("owner", sa.Text, primary_key=True),
    sa.Column("grp", sa.Text, primary_key=True),
    sa.Column("payload", sa.Float, nullable=False),
    sa.Column("startup", sa.Float, nullable=False),
    sa.Column("idle", sa.Float, nullable=False),
    sa.Column("lost", sa.Float, nullable=False),
    sa.Index("ix_costs_hour", "hour"),
)

# Submissions of pilots to batch systems: arrays of equal pilots, each with one stamp.
pilot_submissions = sa.Table(
    "pilot_submissions",
    metadata,
    sa.Column("id", Id, primary_key=True),
    # The name of its pilots in the batch system. A pilot's own stamp is this stamp, "/" and its index.
    sa.Column("stamp", sa.Text, nullable=False, unique=True),
    sa.Column("ce", sa.Text, nullable=False),
    # How far its hand-over has come: core/pilots/handover.py.
    sa.Column("phase", sa.Text, nullable=False),
    sa.Column("pilots", sa.Integer, nullable=False),
    # Empty until the batch system has acknowledged it, or a listing has shown it.
    sa.Column("batch_id", sa.Text, nullable=False, server_default=""),
    # Start of the batch system's controller when it was released: a later controller may have forgotten that.
    sa.Column("epoch", sa.Text, nullable=False, server_default=""),
    # The first complete listing that lacked it before its release, if each one since has lacked it too.
    sa.Column("absent_since", sa.Float),
    sa.Column("reason", sa.Text, nullable=False, server_default=""),
    sa.Column("submitted", sa.Float, nullable=False),
    sa.Column("ended", sa.Float),
    # Calls that released it, since a listing last showed it not held.
    sa.Column("releases", sa.Integer, nullable=False, server_default="0"),
    # Why its batch jobs wait, as a class of core/pilots/waits.py; empty: none waits. And since when.
    sa.Column("wait_class", sa.Text, nullable=False, server_default=""),
    sa.Column("wait_since", sa.Float),
    sa.Index("ix_pilot_submissions_batch_id", "batch_id"),
    partial_index("ix_pilot_submissions_live", "ce", where="ended IS NULL"),
)

# The last probe of each CE: a pilot that examines its node.
ce_probes = sa.Table(
    "ce_probes",
    metadata,
    sa.Column("ce", sa.Text, primary_key=True),
    sa.Column("number", sa.Integer, nullable=False),
    sa.Column("requested", sa.Float, nullable=False),
    sa.Column("requested_by", sa.Text, nullable=False),
    # Null until the director has stored its intent.
    sa.Column("pilot", sa.BigInteger),
    # Empty until the probe has reported; then a list of {name, state, text} in JSON.
    sa.Column("checks", sa.Text, nullable=False, server_default=""),
)

# The stored memory of the director of each CE. A CE without a row has had no trouble yet.
ces = sa.Table(
    "ces",
    metadata,
    sa.Column("ce", sa.Text, primary_key=True),
    # Digest of the policy's section that the row is about: a changed section ends pauses.
    sa.Column("section", sa.Text, nullable=False, server_default=""),
    # Why the director pauses.
    sa.Column("trouble", sa.Text, nullable=False, server_default=""),
    # Why the last listing failed; empty: it was complete.
    sa.Column("unreachable", sa.Text, nullable=False, server_default=""),
    sa.Column("failures", sa.Integer, nullable=False, server_default="0"),
    sa.Column("not_before", sa.Float, nullable=False, server_default="0"),
    # The start of the batch system's controller, as the last complete listing had it; and the listing's time.
    sa.Column("epoch", sa.Text, nullable=False, server_default=""),
    sa.Column("listed", sa.Float),
    # The last failure of a pilot without a job, and how often it has occurred in a row.
    sa.Column("alike", sa.Integer, nullable=False, server_default="0"),
    sa.Column("failure", sa.Text, nullable=False, server_default=""),
    # Queues for which no pilot is submitted since the last ones had no job (0 with an end: all), and until when.
    sa.Column("queues_paused", sa.Integer, nullable=False, server_default="0"),
    sa.Column("queues_until", sa.Float, nullable=False, server_default="0"),
    # Batch jobs at the last listing whose pilots have ended, and the first of these ends.
    sa.Column("orphans", sa.Integer, nullable=False, server_default="0"),
    sa.Column("orphans_since", sa.Float),
    # The last listing that failed.
    sa.Column("unreachable_at", sa.Float),
    # "", "stopped" after failures, or "disabled" by an administrator; who, why and when.
    sa.Column("state", sa.Text, nullable=False, server_default=""),
    sa.Column("state_by", sa.Text, nullable=False, server_default=""),
    sa.Column("state_reason", sa.Text, nullable=False, server_default=""),
    sa.Column("state_since", sa.Float),
)

# The last facts about each CE and its hosts, as its batch system told them.
ce_information = sa.Table(
    "ce_information",
    metadata,
    sa.Column("ce", sa.Text, primary_key=True),
    # When the batch system was asked (0: it has never answered), and the seconds until its answer expires.
    sa.Column("updated", sa.Float, nullable=False, server_default="0"),
    sa.Column("expiry", sa.Float, nullable=False, server_default="0"),
    # JSON: name → value.
    sa.Column("attributes", sa.Text, nullable=False, server_default="{}"),
    # JSON: a list of {count, attributes, hosts}. They change seldom and may be long.
    sa.Column("hosts", sa.Text, nullable=False, server_default="[]"),
    # 1: all hosts are alike.
    sa.Column("homogeneous", sa.Integer, nullable=False, server_default="0"),
    # Why the last question had no answer; empty: it had one.
    sa.Column("problem", sa.Text, nullable=False, server_default=""),
    sa.Column("problem_since", sa.Float),
)
