"""Takes of pilots that found nothing wait here until something has changed, so that an idle pilot costs nothing.

A real pilot asks again every few seconds. Nearly all of these requests find nothing again. Here one of the waiting
pilots, chosen by chance, asks when a job may have come. Others follow until the jobs are found or all have asked.
"""

from __future__ import annotations

import asyncio
import math
import random
from typing import Protocol

TRIES = 8
"""Draws of a pilot before all are looked at."""


class IdlePilot(Protocol):
    """A pilot whose last take found nothing."""

    def take_soon(self) -> None:
        """Ask again now."""


class IdleTakes:
    """The pilots that wait for a change."""

    def __init__(self, loop: asyncio.AbstractEventLoop, rng: random.Random, pause: float) -> None:
        """`pause`: seconds within which a real pilot asks again."""
        self._loop, self._rng, self._pause = loop, rng, pause
        self._waiting: list[IdlePilot] = []
        self._places: dict[IdlePilot, int] = {}
        self._asked: dict[IdlePilot, int] = {}
        """The change after which each pilot has asked last."""
        self._changes = 0
        self._jobs = 0.0
        """Jobs that may have come and that no take has found."""
        self._plan: asyncio.TimerHandle | None = None

    def asks(self, pilot: IdlePilot) -> None:
        """The pilot sends a take."""
        self.leave(pilot)
        self._asked[pilot] = self._changes

    def wait(self, pilot: IdlePilot) -> None:
        """The take of this pilot found nothing. Others may find more: their nodes differ."""
        if pilot not in self._places:
            self._places[pilot] = len(self._waiting)
            self._waiting.append(pilot)
        self._plan_next()

    def leave(self, pilot: IdlePilot) -> None:
        """The pilot does not wait any more: it asks for another reason, or it has ended."""
        place = self._places.pop(pilot, None)
        if place is None:
            return
        last = self._waiting.pop()
        if last is not pilot:
            self._waiting[place] = last
            self._places[last] = place

    def forget(self, pilot: IdlePilot) -> None:
        """The pilot has ended."""
        self.leave(pilot)
        self._asked.pop(pilot, None)

    def changed(self, jobs: float = math.inf) -> None:
        """`jobs`: the number of jobs that may have come."""
        self._changes += 1
        self._jobs += jobs
        self._plan_next()

    def served(self, jobs: int) -> None:
        """A take found this number of jobs."""
        self._jobs = max(0.0, self._jobs - jobs)
        self._plan_next()

    def _plan_next(self) -> None:
        if self._plan is None and self._waiting and self._jobs > 0:
            wait = self._pause * self._rng.random() / (1 + len(self._waiting))
            self._plan = self._loop.call_later(wait, self._next)

    def _next(self) -> None:
        """Let one pilot ask that has not asked since the last change."""
        self._plan = None
        pilot = self._drawn()
        if pilot is None:
            self._jobs = 0.0
            return
        self.leave(pilot)
        pilot.take_soon()

    def _drawn(self) -> IdlePilot | None:
        """A pilot that has not asked since the last change. Chance finds one at once, unless nearly all have asked."""
        waiting = self._waiting
        for _ in range(min(TRIES, len(waiting))):
            pilot = waiting[self._rng.randrange(len(waiting))]
            if self._asked[pilot] < self._changes:
                return pilot
        return next((pilot for pilot in waiting if self._asked[pilot] < self._changes), None)
