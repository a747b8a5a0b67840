"""Long work in the event loop, in short turns between which other requests run."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from time import perf_counter
from typing import TypeVar

Step = TypeVar("Step")

TURN = 0.001
"""Seconds of work in one turn. A collection of garbage may come on top."""


def rest(worked: float, load: float) -> float:
    """Seconds to wait after a turn, so that the work takes the fraction `load` of the time."""
    return worked / load - worked


async def in_turns(steps: Iterable[Step], load: float = 1.0) -> AsyncIterator[Step]:
    """The steps, with a rest after each turn. Also the caller's own work on a step belongs to its turn.

    `load`: the maximum fraction of the event loop's time; with 1 the others run only once between two turns.
    """
    begun = perf_counter()
    for step in steps:
        yield step
        worked = perf_counter() - begun
        if worked >= TURN:
            await asyncio.sleep(rest(worked, load))
            begun = perf_counter()


def run_turn(steps: Iterator[Step | None], clock: Callable[[], float] = perf_counter) -> Step | None:
    """Make steps for one turn. Returns the first one with a result; None: the turn has ended before."""
    until = clock() + TURN
    for step in steps:
        if step is not None or clock() >= until:
            return step
    raise AssertionError("the last step has the result")
