"""The use of payloads that run: as a pilot tells it, and as the server tells it to people."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Optional

from .limits import Count, Id, Int32, Seconds


@dataclass
class PayloadUse:
    """The use of one payload, as its pilot measured it `age` seconds before the message."""

    job: Id
    epoch: Int32
    ran: Seconds = 0.0
    """Wall seconds since its start."""
    cpu: Seconds = 0.0
    """CPU seconds of its processes on this node."""
    busy: Seconds = 0.0
    """Cores that it used on average since the measurement before."""
    memory: Count = 0
    """MB"""
    peak: Count = 0
    """MB"""
    silent: Optional[Seconds] = None
    """Seconds since its standard output or error, or a file in its own folder, grew last. None: nothing has."""
    age: Seconds = 0.0


@dataclass
class JobUse:
    """The use of a job that runs, as its pilot measured it last."""

    at: float
    """The instant of the measurement. All other values are as of then."""
    ran: float
    """Wall seconds since the start of its payload."""
    cpu: float
    """CPU seconds."""
    busy: float
    """Cores that it used on average since the measurement before."""
    memory: int
    """MB"""
    peak: int
    """MB"""
    output_at: Optional[float]
    """When its standard output or error, or a file in its own folder, grew last. None: nothing has."""
