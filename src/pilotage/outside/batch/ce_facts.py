"""Facts about a CE that all batch systems tell in the same way, in GLUE names. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pilotage.core.brokering.host_classes import flattened
from pilotage.core.glue.information import HostClass, Value


def minima_of_hosts(classes: Sequence[HostClass]) -> dict[str, Value]:
    """The least values of the attributes that every host has, without names of the batch system or the site."""
    return {name: value for name, value in flattened(classes).items() if name.startswith("Glue")}


def job_counts(running: int, waiting: int) -> dict[str, Value]:
    """The numbers of the CE's jobs, of all users. Held jobs count as waiting."""
    return {
        "GlueCEStateRunningJobs": running,
        "GlueCEStateWaitingJobs": waiting,
        "GlueCEStateTotalJobs": running + waiting,
    }


def longest(limits: Sequence[float | None]) -> float | None:
    """The largest of these limits; None: one of them is no limit."""
    return None if None in limits else max(limit for limit in limits if limit is not None)


def known_limits(limits: Mapping[str, float | None]) -> dict[str, Value]:
    """The limits that exist, in whole numbers."""
    return {name: int(limit) for name, limit in limits.items() if limit is not None}
