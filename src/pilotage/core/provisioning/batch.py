"""Orders of pilots for one CE that is a batch system, and the room that its caps leave."""

from __future__ import annotations

from dataclasses import dataclass

from pilotage.core.ids import QueueId
from pilotage.core.policy.model import PilotType


@dataclass(frozen=True, slots=True)
class BatchOrder:
    """Pilots of one submission: all are alike."""

    queue: QueueId
    """The queue that they are for; they may serve others."""
    pilots: int
    pilot_type: PilotType
    owner: str
    """With `group` the identity under which they are submitted. A private pilot serves this identity only."""
    group: str
    pool: str
    """The submit pool that submits them."""


def room_for_pilots(waiting: int, running: int, max_waiting: int, max_running: int) -> int:
    """Pilots that a CE's caps still allow. A waiting pilot counts as one that will run."""
    return max(0, min(max_waiting - waiting, max_running - running - waiting))
