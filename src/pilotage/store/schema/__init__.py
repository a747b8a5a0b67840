"""The tables: one schema for SQLite and PostgreSQL. Times are seconds since 1970, memory is MB (2^20 bytes).

A new database is made from it. Migrations (store/migrations) lead to it from the schema of every earlier release.
"""

from __future__ import annotations

from pilotage.store.schema import (
    audit,
    bans,
    catalogues,
    chains,
    datasets,
    handed_outputs,
    history,
    instance,
    intervals,
    job_counts,
    jobs,
    mails,
    parallel_limits,
    pilots,
    requests,
    shares,
    submissions,
    tokens,
    workqueue,
)
from pilotage.store.schema.base import metadata

__all__ = [
    "audit",
    "bans",
    "catalogues",
    "chains",
    "datasets",
    "handed_outputs",
    "history",
    "instance",
    "intervals",
    "job_counts",
    "jobs",
    "mails",
    "metadata",
    "parallel_limits",
    "pilots",
    "requests",
    "shares",
    "submissions",
    "tokens",
    "workqueue",
]
