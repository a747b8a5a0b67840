"""Settings that stay the same for the life of a pilot."""

from __future__ import annotations

import math
from dataclasses import dataclass

from pilotage.wire.pilot import Node


@dataclass(frozen=True)
class PilotConfig:
    """Durations in seconds; instants on the clock of the machine's events."""

    incarnation: int
    node: Node
    """The whole node, with the processors and memory that payloads may use. Its disk is measured again and again."""
    lease: float
    heartbeat: float
    idle: float
    ahead: int = 0
    cpu_power: float = 1.0
    end: float = math.inf
    """When the batch system ends this pilot."""
    margin: float = 30.0
    """Payloads are stopped this long before `end`."""
    min_remaining: float = 60.0
    """With less time left than this, no job is taken or started."""
    max_output: int = 0
    """Maximum bytes of one output file; 0: not known."""
    unfit: str = ""
    """Why no payload may run on this node: the pilot only reports it and leaves. Empty: payloads may run."""
    patience: float = 600.0
    """How long a pilot without jobs waits for an unavailable server."""
    leaves_cut_off: bool = False
    """It stops its payloads and leaves when its lease is over and no server answers.

    A node that slept for longer asks its server first.
    """
    disk: int = 0
    """MB of disk that payloads may ask for together; 0: all that is free."""
    send_log: bool = False
    """The pilot sends the end of its log when it leaves."""
