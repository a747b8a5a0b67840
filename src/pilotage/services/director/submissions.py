"""Submissions of pilots that a director orders, and the calls that follow from a listing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from pilotage.core.provisioning.batch import BatchOrder
from pilotage.services.pool.state import Pool


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
    properties: Mapping[str, str] = field(default_factory=dict)
    """Facts for the administrators of the site: the owner, group and task queue that the pilots are for."""


@dataclass(frozen=True, slots=True)
class BatchSteps:
    """The calls to the batch system that follow from one listing."""

    release: tuple[str, ...] = ()
    """Stamps of submissions to release."""
    cancel: tuple[str, ...] = ()
    """Stamps of submissions to cancel as a whole."""
    cancel_tasks: tuple[str, ...] = ()
    """Batch ids to cancel: doubles, and pilots that were ordered to be killed."""


def properties_of(pool: Pool, order: BatchOrder) -> dict[str, str]:
    """The owner that pilots are bound to, and the task queue that they are submitted for first."""
    properties = {"queue": str(order.queue)}
    if order.owner is not None:
        properties["owner"] = order.owner
        if (entry := pool.queues.index.entries.get(order.queue)) is not None:
            properties["group"] = entry.identity.group
    return properties
