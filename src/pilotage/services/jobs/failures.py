"""The failure counters of jobs."""

from __future__ import annotations

from pilotage.core.handover import THE_PAYLOADS_OWN
from pilotage.store.tables.jobs import JobRow


def counted(job: JobRow, failure: str) -> JobRow:
    """The job with one more failed attempt."""
    if failure in THE_PAYLOADS_OWN:
        return job._replace(own_failures=job.own_failures + 1)
    return job._replace(failures=job.failures + 1)
