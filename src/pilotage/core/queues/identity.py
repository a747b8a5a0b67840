"""The attributes that decide in which task queue a job waits (docs/reference/rules.md, section 1)."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

NONE: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class QueueIdentity:
    """The requirements that all jobs of a queue share. Order and repetition in the sets do not matter.

    `cpu_time` is the bucket in seconds of a reference core, `memory` the bucket in MB (0: none asked for),
    `requirements` the canonical text of a ClassAd expression ("" for none).
    """

    owner: str
    group: str
    setup: str = ""
    cpu_time: int = 500
    memory: int = 0
    processors: int = 1
    job_type: str = "User"
    force_generic: bool = False
    requirements: str = ""
    submit_pools: frozenset[str] = field(default=NONE)
    pilot_types: frozenset[str] = field(default=NONE)
    sites: frozenset[str] = field(default=NONE)
    banned_sites: frozenset[str] = field(default=NONE)
    grid_ces: frozenset[str] = field(default=NONE)
    grid_middlewares: frozenset[str] = field(default=NONE)
    platforms: frozenset[str] = field(default=NONE)
    tags: frozenset[str] = field(default=NONE)

    def to_json(self) -> str:
        """Canonical text: equal identities give equal texts."""
        plain = {
            key: sorted(value) if isinstance(value, frozenset) else value
            for key, value in asdict(self).items()
        }
        return json.dumps(plain, sort_keys=True, separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str) -> QueueIdentity:
        plain = json.loads(text)
        values: dict[str, Any] = {}
        for key, value in plain.items():
            values[key] = frozenset(value) if isinstance(value, list) else value
        return cls(**values)

    def digest(self) -> str:
        return hashlib.sha256(self.to_json().encode()).hexdigest()


def cpu_bucket(seconds: float, buckets: Sequence[int]) -> int:
    """The smallest bucket that holds `seconds`; above the last one: the last one ("DIRAC Task Queue Matching").

    >>> [cpu_bucket(s, (500, 5000, 50000, 300000)) for s in (0, 10, 500, 501, 400000)]
    [500, 500, 500, 5000, 300000]
    """
    return next((bucket for bucket in buckets if seconds <= bucket), buckets[-1])


def memory_bucket(megabytes: int, buckets: Sequence[int]) -> int:
    """The smallest bucket that holds `megabytes`; 0 stays 0.

    Above the last bucket memory is not clamped, since a job would then be given to nodes that are too small:
    it moves up to the next multiple of the last bucket.
    """
    if megabytes <= 0:
        return 0
    last = buckets[-1]
    return next((bucket for bucket in buckets if megabytes <= bucket), -(-megabytes // last) * last)
