"""One measured figure, with what it is compared to."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field


@dataclass
class Figure:
    name: str
    ours: float
    unit: str
    peers: dict[str, float]
    ratio: float
    """Ours to the best peer or limit of the same call."""
    runs: list[float] = field(default_factory=list)
    notes: dict[str, str] = field(default_factory=dict)

    def print(self) -> None:
        print(
            f"{self.name}: {self.ours:,.0f} {self.unit} (runs: {', '.join(f'{run:,.0f}' for run in self.runs)})"
        )
        for peer, value in self.peers.items():
            print(f"  {peer}: {value:,.0f} {self.unit}")
        for what, text in self.notes.items():
            print(f"  {what}: {text}")


def figure(
    name: str,
    unit: str,
    runs: Sequence[float],
    peers: dict[str, float],
    notes: dict[str, str],
    *,
    against: str = "",
) -> Figure:
    """The median of `runs`; the ratio to the peer `against`, or to the best of all."""
    ours = statistics.median(runs)
    best = peers.get(against) or max(peers.values(), default=0.0)
    return Figure(
        name, round(ours, 1), unit, peers, round(ours / best, 3) if best else 0.0, list(runs), notes
    )
