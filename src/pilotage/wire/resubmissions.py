"""Facts of resubmissions, in the messages about requests."""

from __future__ import annotations

from dataclasses import dataclass
from typing import List


@dataclass
class ResubmissionState:
    """A later request that makes failed parts of an ended one again, or has done them."""

    request: int
    state: str
    parts: int


@dataclass
class Resubmissions:
    """The failed parts of an ended request, once it has a resubmission."""

    failed: int
    taken: int
    """Parts of them that a resubmission does or has done."""
    resubmissions: List[ResubmissionState]


@dataclass
class ResubmissionCount:
    """A resubmission that does, or has done, failed parts which a new one leaves out."""

    request: int
    parts: int
    """The parts that are left out, as a whole or partly."""
