"""Long work in the event loop, in short turns between which other requests run."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from typing import TypeVar

Step = TypeVar("Step")

TURN = 0.001
"""Seconds of work in one turn. A collection of garbage may come on top."""


def rest(worked: float, load: float) -> float:
    """Seconds to wait after a turn, so that the work takes the fraction `load` of the time."""
    return worked / load - worked


async def in_turns(
    steps: Iterable[Step], monotonic: Callable[[], float], load: float = 1.0
) -> AsyncIterator[Step]:
    """The steps, with a rest after each turn. Also the caller's own work on a step belongs to its turn.

    `load`: the maximum fraction of the event loop's time; with 1 the others run only once between two turns.
    """
    begun = monotonic()
    for step in steps:
        yield step
        worked = monotonic() - begun
        if worked >= TURN:
            await asyncio.sleep(rest(worked, load))
            begun = monotonic()


def run_turn(steps: Iterator[Step | None], monotonic: Callable[[], float]) -> Step | None:
    """Make steps for one turn. Returns the first one with a result; None: the turn has ended before."""
    until = monotonic() + TURN
    for step in steps:
        if step is not None or monotonic() >= until:
            return step
    raise AssertionError("the last step has the result")
