"""The attributes that decide in which task queue a job waits (docs/reference/rules.md, section 1)."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import lru_cache
from math import floor
from typing import Any

NONE: frozenset[str] = frozenset()

CLOSE_OUTPUT = "isundefined(other.closeoutputsecheck) || other.closeoutputsecheck"
"""Whether the storage element of the requester is close to the CE; true where the CE does not tell."""


@dataclass(frozen=True, slots=True)
class QueueIdentity:
    """The requirements that all jobs of a queue share. Order and repetition in the sets do not matter.

    `cpu_time` is the bucket in seconds of a reference core. `memory` and `disk` are buckets in MB, and `wall_time` is
    the bucket in seconds by the clock; 0: none asked for. `requirements` and `host_requirements` are canonical texts
    of ClassAd expressions, and `output_se` names a storage element ("" for none). `folders` are the folders that jobs
    in place work in.
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
    wall_time: int = 0
    output_se: str = ""
    host_requirements: str = ""
    disk: int = 0
    folders: frozenset[str] = field(default=NONE)

    @property
    def account(self) -> str:
        """The owner under whose account the jobs must run, since they run in folders of this account; "": any."""
        return self.owner if self.folders else ""

    @property
    def match_text(self) -> str:
        """The ClassAd expression that must be true for an offer, with the requester's ad as `my`; empty: none.

        It joins `requirements`, `host_requirements`, and with an `output_se` the CE's own check of it.
        """
        if not self.host_requirements and not self.output_se:
            return self.requirements
        return _joined(self.requirements, self.host_requirements, CLOSE_OUTPUT if self.output_se else "")

    def match_parts(self) -> dict[str, QueueIdentity]:
        """Each part of the match text under its name in JDL, as a queue with this part only."""
        none = replace(self, requirements="", host_requirements="", output_se="")
        parts = {}
        if self.requirements:
            parts["Requirements"] = replace(none, requirements=self.requirements)
        if self.host_requirements:
            parts["HostRequirements"] = replace(none, host_requirements=self.host_requirements)
        if self.output_se:
            parts["OutputSE"] = replace(none, output_se=self.output_se)
        return parts

    def to_json(self) -> str:
        """Canonical text: equal identities give equal texts. It names `disk` and `folders` only if asked for."""
        plain = {
            key: sorted(value) if isinstance(value, frozenset) else value
            for key, value in asdict(self).items()
            if key not in ("disk", "folders") or value
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
        return _digest_of(self)


@lru_cache(maxsize=4096)
def _joined(*parts: str) -> str:
    named = [part for part in parts if part]
    return named[0] if len(named) == 1 else " && ".join(f"({part})" for part in named)


@lru_cache(maxsize=4096)
def _digest_of(identity: QueueIdentity) -> str:
    return hashlib.sha256(identity.to_json().encode()).hexdigest()


def cpu_bucket(seconds: float, buckets: Sequence[int]) -> int:
    """The smallest bucket that holds `seconds`; above the last one: the last one ("DIRAC Task Queue Matching").

    >>> [cpu_bucket(s, (500, 5000, 50000, 300000)) for s in (0, 10, 500, 501, 400000)]
    [500, 500, 500, 5000, 300000]
    """
    return next((bucket for bucket in buckets if seconds <= bucket), buckets[-1])


def size_bucket(megabytes: int, buckets: Sequence[int]) -> int:
    """The smallest bucket of memory or disk that holds `megabytes`; 0 stays 0.

    Above the last bucket a size is not clamped, since a job would then be given to nodes that are too small:
    it moves up to the next multiple of the last bucket.
    """
    if megabytes <= 0:
        return 0
    last = buckets[-1]
    return next((bucket for bucket in buckets if megabytes <= bucket), -(-megabytes // last) * last)


_WALL_STEPS = ((60, 1), (3600, 60), (6 * 3600, 300), (86400, 900))
"""Up to this number of seconds, wall times move up to a multiple of that number."""


def wall_bucket(seconds: int) -> int:
    """The wall time by which queues are told apart: the next whole minute, 5 or 15 minutes or hour; 0 stays 0.

    It never moves down, since a job would then be given to pilots that end too early.

    >>> [wall_bucket(s) for s in (0, 45, 61, 3600, 3601, 21_601, 86_401)]
    [0, 45, 120, 3600, 3900, 22500, 90000]
    """
    step = next((step for most, step in _WALL_STEPS if seconds <= most), 3600)
    return max(0, -(-seconds // step) * step)


def wall_floor(seconds: float) -> int:
    """The longest wall time whose bucket is at most `seconds`.

    >>> [wall_floor(s) for s in (0.5, 59.9, 119, 3600, 22_000)]
    [0, 59, 60, 3600, 21600]
    """
    whole = floor(min(seconds, 1e9))
    steps = (step for _, step in (*_WALL_STEPS, (0, 3600)))
    return max(bucket for step in steps if wall_bucket(bucket := whole // step * step) <= whole)
