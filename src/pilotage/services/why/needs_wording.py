"""The requirements of a task queue as names and values, and the owners that an offer is reserved for."""

from __future__ import annotations

from pilotage.core.jobs.description import JobDescription
from pilotage.core.jobs.request_types import REQUEST_TYPES
from pilotage.core.queues.fit import AnyIdentity, Offer
from pilotage.core.queues.identity import QueueIdentity

REQUIREMENTS_REFUSED = "the Requirements expression is not true there"


def needs(queue: QueueIdentity, description: JobDescription | None = None) -> dict[str, str]:
    """Name → value of each requirement of the queue. `description`, of one of its jobs, adds the requested numbers."""
    cpu_time, memory, disk, wall_time = (
        (description.cpu_time, description.memory, description.disk, description.wall_time)
        if description
        else (None, None, None, None)
    )
    # Only a request's jobs ask for time that nobody has requested.
    unasked = "an estimate" if queue.job_type in REQUEST_TYPES else ""
    values = {
        "owner": queue.owner,
        "group": queue.group,
        "setup": queue.setup,
        "CPU time": _bucket(queue.cpu_time, cpu_time, "s", unasked),
        "memory": _bucket(queue.memory, memory, "MB") if queue.memory else "",
        "disk": _bucket(queue.disk, disk, "MB") if queue.disk else "",
        "wall time": _bucket(queue.wall_time, wall_time, "s", unasked) if queue.wall_time else "",
        "processors": str(queue.processors),
        "job type": queue.job_type,
        "pilots": "generic only" if queue.force_generic else listed(queue.pilot_types),
        "sites": listed(queue.sites),
        "banned sites": listed(queue.banned_sites),
        "CEs": listed(queue.grid_ces),
        "platforms": listed(queue.platforms),
        "tags": listed(queue.tags),
        "requirements": queue.requirements,
        "host requirements": queue.host_requirements,
        "output SE": queue.output_se,
        "folders": listed(queue.folders),
    }
    return {name: value for name, value in values.items() if value}


def _bucket(bucket: int, requested: int | None, unit: str, unasked: str = "") -> str:
    """The bucket of the queue, and the requested number if it is known. `unasked`: who asks where nobody has."""
    if requested is None:
        return f"bucket {bucket} {unit}"
    if requested == bucket:
        return f"{bucket} {unit}"
    if not requested:
        return f"{bucket} {unit} ({unasked})" if unasked else f"none requested (bucket {bucket} {unit})"
    if requested < bucket:
        return f"{bucket} {unit} (next bucket above the requested {requested} {unit})"
    return f"{bucket} {unit} (highest bucket; {requested} {unit} requested)"


def reserved_for(offer: Offer) -> str:
    """The owner, or the identities, that pilots with such an offer serve exclusively; "": they serve everybody."""
    if offer.only_owner is not None:
        return offer.only_owner
    if offer.pilot_type != "private":
        return ""
    return ", ".join(
        "the owner that a pilot is submitted for"
        if isinstance(identity, AnyIdentity)
        else identity.group
        if identity.job_sharing
        else f"{identity.owner} ({identity.group})"
        for identity in offer.identities
    )


def listed(names: frozenset[str]) -> str:
    return ", ".join(sorted(names))


def match_text_refused(queue: QueueIdentity) -> str:
    """The sentence for REQUIREMENTS, with the parts that the queue has."""
    sentences = {
        "Requirements": REQUIREMENTS_REFUSED,
        "HostRequirements": "the HostRequirements expression is not true there",
        "OutputSE": f"the storage element {queue.output_se} is not close to it",
    }
    return ", or ".join(sentences[name] for name in queue.match_parts()) or sentences["Requirements"]
