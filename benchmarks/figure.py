"""A measured figure with its reference figures."""

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
            f"{self.name}: {told(self.ours)} {self.unit} (runs: {', '.join(told(run) for run in self.runs)})"
        )
        for peer, value in self.peers.items():
            print(f"  {peer}: {told(value)} {self.unit}")
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


def part(ordered: Sequence[float], place: float) -> float:
    """The value that this part of the sorted values is not above; 0 of none."""
    return ordered[min(len(ordered) - 1, int(len(ordered) * place))] if ordered else 0.0


def told(number: float) -> str:
    """Three digits at least."""
    return f"{number:,.0f}" if abs(number) >= 100 else f"{number:.3g}"
