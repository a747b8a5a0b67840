"""The budget of a CE: core-seconds that its pilots may use within any window of time.

A submission is allowed only if the budget holds for every possible course of the pilots. So a pilot that may still
run counts up to the end of its wall time. A waiting pilot counts with its whole wall time.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from math import ceil, floor, inf

from pilotage.core.errors import InvalidInput

HINT = 'write core time per window, such as "20000 core-h / 30 d"'

_UNITS = {"s": 1.0, "min": 60.0, "h": 3600.0, "d": 86400.0, "w": 604800.0}
_BUDGET = re.compile(r"(\d+(?:\.\d*)?)core-(s|min|h|d)/(\d+(?:\.\d*)?)(s|min|h|d|w)")

SHORTEST_WINDOW, LONGEST_WINDOW = 3600.0, 366 * 86400.0
LARGEST = 1e15
"""Core-seconds."""

LONGEST_TEXT = 100


@dataclass(frozen=True, slots=True)
class Budget:
    """A limit on the core-seconds of any window."""

    core_seconds: float
    window: float
    """Seconds."""


@dataclass(frozen=True, slots=True)
class PilotBurn:
    """A pilot that may have core-seconds that are not booked yet."""

    processors: int
    wall: float
    """Seconds that it may run."""
    cores_from: float | None
    """When its batch job began; None: it waits, or it is not known."""
    booked_until: float | None
    cores_until: float | None
    """When it ended; None: it has not."""
    may_run: bool
    """False: its batch job has ended."""


@dataclass(frozen=True, slots=True)
class BudgetStatus:
    """A budget and its use, in core-seconds."""

    budget: Budget
    used: float
    """Booked in the window."""
    committed: float
    """Pilots that wait or run may still use it."""
    pilot: float
    """One more pilot may use it."""

    @property
    def left(self) -> float:
        return max(0.0, self.budget.core_seconds - self.used - self.committed)

    @property
    def room(self) -> int:
        """Pilots that may be submitted."""
        # A quotient such as 2.9999999999 comes from sums of floats.
        return floor(self.left / self.pilot + 1e-9)

    def allows(self, core_seconds: float) -> bool:
        """Whether pilots that may use `core_seconds` may be submitted."""
        return core_seconds <= self.left + 1e-6

    def explain(self) -> str:
        """One line: the budget, its use, and whether a pilot is allowed."""
        amounts = (self.budget.core_seconds, self.used, self.committed, self.pilot)
        limit, used, committed, pilot = (f"{amount / 3600:,.6g}" for amount in amounts)
        window = f"{self.budget.window / 86400:.6g} d"
        text = (
            f"budget {limit} core-h / {window}: {used} core-h are used, pilots may use {committed} more,"
            f" and each further pilot up to {pilot}"
        )
        return text if self.room else f"{text}: no pilot is submitted"


def parse_budget(text: str) -> Budget:
    """Read "20000 core-h / 30 d". Raises `InvalidInput`.

    >>> parse_budget("1.5 core-h / 1 d")
    Budget(core_seconds=5400.0, window=86400.0)
    """
    match = _BUDGET.fullmatch(re.sub(r"\s+", "", text)) if len(text) <= LONGEST_TEXT else None
    if match is None:
        raise InvalidInput(f"{text[:LONGEST_TEXT]!r} is not a budget", hint=HINT)
    core_seconds = float(match[1]) * _UNITS[match[2]]
    window = float(match[3]) * _UNITS[match[4]]
    if not 0 < core_seconds <= LARGEST:
        raise InvalidInput(
            f"the core time {match[1]} core-{match[2]} is not between 0 and {LARGEST / 3600:.3g} core-h",
            hint=HINT,
        )
    if not SHORTEST_WINDOW <= window <= LONGEST_WINDOW:
        raise InvalidInput(f"the window {match[3]} {match[4]} is not between 1 h and 366 d", hint=HINT)
    return Budget(core_seconds, window)


def pilot_cost(processors: int, wall: float) -> float:
    """The core-seconds that a pilot may use: batch systems count the wall time in whole minutes."""
    return processors * max(60.0, ceil(wall / 60) * 60.0)


def may_burn(pilot: PilotBurn, now: float) -> float:
    """The core-seconds that a pilot may have used without a booking, or may still use."""
    if pilot.cores_from is None:
        return pilot_cost(pilot.processors, pilot.wall) if pilot.may_run else 0.0
    since = pilot.cores_from if pilot.booked_until is None else pilot.booked_until
    until = -inf if pilot.cores_until is None else pilot.cores_until
    if pilot.may_run:
        until = max(until, now, pilot.cores_from + pilot_cost(1, pilot.wall))
    return pilot.processors * max(0.0, until - since)


def budget_status(
    budget: Budget, used: float, pilots: Iterable[PilotBurn], pilot: float, now: float
) -> BudgetStatus:
    """The status now. `used`: core-seconds booked in the window. `pilot`: as of `pilot_cost`, of the next pilot."""
    return BudgetStatus(budget, used, sum(may_burn(known, now) for known in pilots), pilot)
