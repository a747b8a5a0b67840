"""Submissions of pilots that a director orders, and the calls that follow from a listing."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class SubmissionIntent:
    """A submission whose rows are stored and that the batch system has not been given yet."""

    stamp: str
    secret: str
    pilots: int
    processors: int
    memory: int
    """MB of each pilot; 0: the batch system's default."""
    wall: float


@dataclass(frozen=True, slots=True)
class BatchSteps:
    """The calls to the batch system that follow from one listing."""

    release: tuple[str, ...] = ()
    """Stamps of submissions to release."""
    cancel: tuple[str, ...] = ()
    """Stamps of submissions to cancel as a whole."""
    cancel_tasks: tuple[str, ...] = ()
    """Batch ids to cancel: doubles, and pilots that were ordered to be killed."""
