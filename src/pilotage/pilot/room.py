"""The part of the node that is left for further payloads. Memory and disk are MB; infinite: not known."""

from __future__ import annotations

import math
from typing import List, NamedTuple

from pilotage.wire.pilot import Payload

from .assignments import ACTIVE, OCCUPYING, Assignments, Stage, Used
from .pilot_config import PilotConfig


class Room(NamedTuple):
    """Resources for further payloads. Other users may fill the disk: then `disk` is negative."""

    processors: int
    memory: float
    disk: float

    def holds(self, payload: Payload) -> bool:
        return (
            payload.processors <= self.processors
            and payload.memory <= self.memory
            and (not payload.disk or payload.disk <= self.disk)
        )

    def without(self, payload: Payload) -> "Room":
        return Room(
            self.processors - payload.processors, self.memory - payload.memory, self.disk - payload.disk
        )


def room_beside(config: PilotConfig, assignments: Assignments, used: Used) -> Room:
    """The resources that are left beside these. Of a demand for disk, the written part is no longer free."""
    node = config.node
    return Room(
        node.processors - used.processors,
        (node.memory or math.inf) - used.memory,
        min(assignments.free_disk - (used.disk - used.written), (config.disk or math.inf) - used.disk),
    )


def present_room(config: PilotConfig, assignments: Assignments) -> Room:
    """The resources that no running payload uses."""
    return room_beside(config, assignments, assignments.resources_used(*OCCUPYING))


def offers_ahead(config: PilotConfig, assignments: Assignments) -> List[int]:
    """Mark the offers that must wait until a payload ends. Returns their jobs."""
    offers = assignments.in_stages(Stage.OFFERED)
    if not offers:
        return []
    room = room_beside(config, assignments, assignments.resources_used(*OCCUPYING, Stage.READY))
    for assignment in offers:
        payload = assignment.offer.payload
        assignment.ahead = not room.holds(payload)
        if not assignment.ahead:
            room = room.without(payload)
    return [assignment.offer.job for assignment in offers if assignment.ahead]


def may_ever_hold(config: PilotConfig, assignments: Assignments, payload: Payload) -> bool:
    """Whether a payload fits when all others have ended, and their folders are removed."""
    node = config.node
    if payload.processors > node.processors or (node.memory and payload.memory > node.memory):
        return False
    if not payload.disk:
        return True
    freed = sum(assignment.written for assignment in assignments.in_stages(*ACTIVE))
    return payload.disk <= min(assignments.free_disk + freed, config.disk or math.inf)
