"""Messages about computing elements (CEs). Rules of bodies, instants, pages and errors: wire/__init__.py.

GET    /v1/batch-systems/{name}            BatchSystem; administrators only
POST   /v1/ces/check                       CeCheck → CeRefusal; administrators only
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, List, Optional

from pilotage.wire.limits import Limit
from pilotage.wire.policy import PolicyText

CeName = Annotated[str, Limit(longest=200)]


@dataclass
class Partition:
    """A part of a batch system with limits of its own."""

    name: str
    default: bool
    up: bool
    """False: it starts no jobs."""
    wall: Optional[float]
    """The longest time of a batch job, in seconds; None: no limit."""
    nodes: int
    processors: int
    """Cores of its widest node."""
    memory: int
    """MB of the node with most."""


@dataclass
class BatchSystem:
    """A batch system as it describes itself."""

    name: str
    """As `ces.*.type` of the policy: slurm."""
    partitions: List[Partition] = field(default_factory=list)


@dataclass
class CeCheck:
    """Ask whether the batch system would accept the pilots of a CE. Nothing is submitted."""

    text: PolicyText
    """A whole policy; it need not be in force."""
    name: CeName


@dataclass
class CeRefusal:
    """Whether the batch system would refuse the pilots of a CE."""

    reason: str = ""
    """In the batch system's words; empty: it would accept them."""
