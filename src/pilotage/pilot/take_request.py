"""Decides how many jobs the pilot asks for: enough to fill the node, and more while payloads are very short."""

from __future__ import annotations

import dataclasses
import math
from typing import Optional

from pilotage.wire.pilot import MAX_HELD, Node, Take

from .assignments import OCCUPYING, WAITING, Assignments, Stage, used_by
from .job_rate import SHORT_PAYLOAD, JobRate
from .pilot_config import PilotConfig
from .room import Room, room_beside

UNLIMITED = 1e9
"""CPU seconds left where the batch system sets no limit."""


def next_take(
    number: int,
    assignments: Assignments,
    job_rate: JobRate,
    config: PilotConfig,
    now: float,
) -> Optional[Take]:
    """The take that makes best use of the node; None if no more jobs are needed.

    `count` suffices to fill the free processors with one-processor jobs. `ahead` is limited by the settings. Jobs
    ahead are matched against the part of the node that no long payload occupies.
    """
    node = config.node
    used = assignments.resources_used(*OCCUPYING, *WAITING)
    room = MAX_HELD - len(assignments)
    free = min(max(0, node.processors - used.processors), room)
    ahead = min(_ahead(assignments, job_rate, config), room - free)
    if not free and not ahead:
        return None
    if not ahead:
        beside = room_beside(config, assignments, used)
        return Take(number, free, _offered_part(config, assignments, beside._replace(processors=free), now))
    long_payloads = (
        assignment
        for assignment in assignments.in_stages(*OCCUPYING)
        if now - assignment.since > SHORT_PAYLOAD
    )
    soon = room_beside(config, assignments, used_by(long_payloads))
    if soon.processors <= 0:
        return None
    return Take(number, free + ahead, _offered_part(config, assignments, soon, now), ahead)


def _ahead(assignments: Assignments, job_rate: JobRate, config: PilotConfig) -> int:
    slots = config.node.processors
    target = min(config.ahead, job_rate.jobs_ahead(slots))
    if not target:
        return 0
    running = assignments.count(*OCCUPYING, Stage.STORING)
    held_ahead = max(0, assignments.count(*WAITING) + running - slots)
    return max(0, target - held_ahead)


def _offered_part(config: PilotConfig, assignments: Assignments, room: Room, now: float) -> Node:
    wall_left = max(0.0, min(config.end - config.margin - now, UNLIMITED))
    cpu_left = wall_left * config.cpu_power
    return dataclasses.replace(
        config.node,
        processors=room.processors,
        memory=_told(room.memory),
        disk=_told(room.disk),
        cpu_left=min(cpu_left, UNLIMITED),
        wall_left=wall_left,
        other_folders=list(assignments.other_folders),
    )


def _told(megabytes: float) -> int:
    """A size as the server reads it: 0 is not known, so a node that has nothing left tells 1."""
    return 0 if megabytes == math.inf else max(1, int(megabytes))
