"""The parts of jobs and requests that memory keeps, so that messages of pilots read few rows."""

from __future__ import annotations

from dataclasses import dataclass, field

from pilotage.core.ids import JobId
from pilotage.services.pool.lru_cache import LruCache
from pilotage.services.pool.records import StepOutputs
from pilotage.services.pool.submission_cache import SubmissionCache


@dataclass(slots=True)
class JobCaches:
    """Submissions, the outputs of requests, and jobs that a user watches."""

    submissions: SubmissionCache = field(default_factory=SubmissionCache)
    step_outputs: LruCache[tuple[int, int], StepOutputs] = field(default_factory=lambda: LruCache(4096))
    """By request and position of the step."""
    given_places: set[tuple[str, str]] = field(default_factory=set)
    """Sites and storage places that the store has as given to pilots, as far as known here."""
    followed: dict[JobId, float] = field(default_factory=dict)
    """Jobs with output that a user watches, and until when. The lease duty drops expired entries."""
