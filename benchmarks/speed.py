"""How fast the processor is just now: on shared machines it changes by a factor of four within minutes."""

from __future__ import annotations

import time

TURNS = 200_000
TRIES = 5


def speed() -> float:
    """Millions of turns of a loop in Python that adds one, in a second; the best of some tries."""
    return max(_once() for _ in range(TRIES))


def _once() -> float:
    total = 0
    begun = time.perf_counter()
    for _ in range(TURNS):
        total += 1
    return total / (time.perf_counter() - begun) / 1e6
