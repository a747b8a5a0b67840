"""The state that the directors of the CEs share."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from pilotage.core.ids import QueueId
from pilotage.core.provisioning.iteration import BatchOrder
from pilotage.services.pool.records import DirectorNote


@dataclass(slots=True)
class Provisioning:
    """The outcome of the directors' last cycles."""

    directors: dict[str, DirectorNote] = field(default_factory=dict)
    """The last cycle of each CE's director."""
    orders: dict[str, tuple[BatchOrder, ...]] = field(default_factory=dict)
    """Orders of the last iteration that the CE's own cycle has not stored as intents yet."""
    refusals: Mapping[QueueId, str] = field(default_factory=dict)
    """Queues whose pilots no submit pool took in the last iteration, and the verdicts of the pools."""
