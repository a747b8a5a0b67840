"""Messages that explain why a request or an element waits. Rules of errors: wire/__init__.py."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Dict, List, Optional

from pilotage.wire.call import PERSON, ApiCall, NoRequest


@dataclass
class SiteCondition:
    """The first condition that keeps elements from a site."""

    site: str
    reason: str
    """Empty: the next pull may take them for this site."""
    elements: int


@dataclass
class RequestWhyChange:
    """A single change, and the elements without an open site that it would let go."""

    change: str
    elements: int


@dataclass
class ReleaseCondition:
    """The first condition that keeps made jobs from a site."""

    site: str
    reason: str
    """With the numbers of a limit that is reached. Empty: the next release may take them for this site."""
    jobs: int


@dataclass
class ReleaseChange:
    """A single change, and the made jobs without an open site that it would let go at once."""

    change: str
    jobs: int


@dataclass
class RequestWhy:
    """Why a request, or one of its elements, is not further."""

    request: int
    name: str
    state: str
    summary: str
    advice: str = ""
    element: Optional[int] = None
    elements: Dict[str, int] = field(default_factory=dict)
    """The number of elements in each state."""
    jobs: Dict[str, int] = field(default_factory=dict)
    """Element jobs by state."""
    sites: List[SiteCondition] = field(default_factory=list)
    """For the elements that no agent has."""
    changes: List[RequestWhyChange] = field(default_factory=list)
    made_jobs: List[ReleaseCondition] = field(default_factory=list)
    """For the jobs that are made and not released."""
    releases: List[ReleaseChange] = field(default_factory=list)
    """Changes that would let made jobs go."""
    next_retry: Optional[float] = None
    """When the first failed job is made again."""
    waiting_job: Optional[int] = None
    """A job of the pool that waits: `pilotage why JOB` explains it."""


WHY_REQUEST = ApiCall("GET", "/v1/requests/{request}/why", NoRequest, RequestWhy, PERSON)
WHY_ELEMENT = ApiCall("GET", "/v1/elements/{element}/why", NoRequest, RequestWhy, PERSON)
