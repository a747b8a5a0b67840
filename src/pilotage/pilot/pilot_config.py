"""What does not change during the life of a pilot."""

from __future__ import annotations

import math
from dataclasses import dataclass

from pilotage.wire.pilot import Node


@dataclass(frozen=True)
class PilotConfig:
    """Durations in seconds; instants on the clock of the machine's events."""

    incarnation: int
    node: Node
    """The whole node, with the processors and memory that payloads may use."""
    lease: float
    heartbeat: float
    idle: float
    ahead: int = 0
    cpu_power: float = 1.0
    end: float = math.inf
    """When the batch system ends this pilot."""
    margin: float = 30.0
    """Payloads are ended so long before `end`."""
    min_remaining: float = 60.0
    """With less time left than this nothing is taken or started any more."""
    max_output: int = 0
    """Bytes of one output file that the server takes; 0: not known."""
    patience: float = 600.0
    """A pilot that holds nothing waits so long for a server that is away."""
