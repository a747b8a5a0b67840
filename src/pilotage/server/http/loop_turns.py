"""Lets long work in the event loop make way for others."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from time import thread_time

TURN = 0.005
"""Seconds of processor time that a request may work at a time."""


class LoopTurns:
    """Counts the processor time of one request's turn. Call `pause` between two pieces of its work."""

    def __init__(self, clock: Callable[[], float] = thread_time) -> None:
        self._clock = clock
        self._begun = clock()

    async def pause(self) -> None:
        """Let the event loop serve others if this turn has lasted for `TURN` or longer."""
        if self._clock() - self._begun >= TURN:
            await asyncio.sleep(0)
            self._begun = self._clock()
