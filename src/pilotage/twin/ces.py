"""The CEs of the twin: their nodes, how long batch jobs wait there, and how often pilots fail."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class TwinNodes:
    """Nodes that are alike."""

    count: int
    processors: int
    """Cores of each node."""
    memory: int = 0
    """MB (2^20 bytes) of each node; 0: it bounds no job."""

    @property
    def cores(self) -> int:
        return self.count * self.processors


@dataclass(frozen=True, slots=True)
class TwinCe:
    """One CE. A pilot takes a part of one node, as the policy says for the CE of the same name."""

    name: str
    nodes: tuple[TwinNodes, ...]
    wall: float = 604800.0
    """Seconds after which the batch system ends a batch job."""
    start_delay: float = 10.0
    """Seconds from the begin of a batch job until its pilot asks for work."""
    waits: tuple[float, ...] = ()
    """Seconds that batch jobs wait although a node may be free: their quantiles, at equal distances from 0 to 1.

    Empty: a batch job begins as soon as it fits a node.
    """
    failure_rate: float = 0.0
    """Failures per hour of a running pilot."""
    isolates: bool = True
    """Whether its nodes let pilots isolate payloads. Where they do not, a pilot serves one owner at a time."""

    @property
    def cores(self) -> int:
        return sum(kind.cores for kind in self.nodes)

    def wait_at(self, fraction: float) -> float:
        """The wait that this fraction (0 to 1) of the batch jobs does not exceed."""
        if not self.waits:
            return 0.0
        place = min(max(fraction, 0.0), 1.0) * (len(self.waits) - 1)
        below = min(int(place), len(self.waits) - 1)
        above = min(below + 1, len(self.waits) - 1)
        return self.waits[below] + (place - below) * (self.waits[above] - self.waits[below])

    def fits(self, processors: int, memory: int) -> bool:
        """Whether an empty node has room for a job."""
        return any(
            kind.processors >= processors and (not kind.memory or kind.memory >= memory)
            for kind in self.nodes
        )
