"""Where the core-seconds of a pilot went: payload, start-up, idle or lost. Each one is booked exactly once.

- *start-up*: from the start of the batch job to the pilot's first call;
- *payload*: cores that attempts held, from the start of the attempt to its end;
- *idle*: cores that no attempt held;
- *lost*: from the last sign of life of a pilot that ended without a word; all of a pilot that never called.

The kind of an instant depends on that instant alone, so it does not matter in how many steps a life is booked.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from itertools import pairwise
from math import floor, inf
from typing import NamedTuple

from pilotage.core.ids import PilotId

HOUR = 3600


@dataclass(frozen=True, slots=True)
class PilotLife:
    """The instants of a pilot that decide on the kind of its core-seconds."""

    pilot: PilotId
    ce: str
    owner: str
    """The owner that the pilot is bound to; empty: it serves everybody."""
    group: str
    processors: int
    cores_from: float
    """When its batch job began."""
    called: float | None
    """Its first call; None: it never called."""
    silent_from: float | None = None
    """Its last sign of life before it ended without a word, or before it came back."""
    silent_until: float | None = None
    """When it came back; None: it has not."""


class HeldCores(NamedTuple):
    """Cores that an attempt held."""

    owner: str
    group: str
    processors: int
    begin: float
    end: float | None
    """None: it still holds them."""


class CostKey(NamedTuple):
    """Core-seconds are added up by this."""

    ce: str
    hour: int
    """The start of the hour, in seconds since 1970."""
    owner: str
    """The owner of the attempt; for start-up, idle and lost time the owner that the pilot was bound to."""
    group: str


def efficiency(payload: float, total: float) -> float | None:
    """The fraction of core-seconds that payloads had; None: there are none."""
    return min(1.0, payload / total) if total else None


@dataclass(slots=True)
class CoreSeconds:
    """An amount of each kind."""

    payload: float = 0.0
    startup: float = 0.0
    idle: float = 0.0
    lost: float = 0.0

    @property
    def total(self) -> float:
        return self.payload + self.startup + self.idle + self.lost

    @property
    def efficiency(self) -> float | None:
        return efficiency(self.payload, self.total)

    def add(self, other: CoreSeconds) -> None:
        self.payload += other.payload
        self.startup += other.startup
        self.idle += other.idle
        self.lost += other.lost


Costs = dict[CostKey, CoreSeconds]


class _CostPhase(Enum):
    STARTUP = auto()
    WORK = auto()
    LOST = auto()


def book(life: PilotLife, since: float, until: float, held: Sequence[HeldCores]) -> Costs:
    """The core-seconds of a pilot in [since, until). `held`: all attempts that held cores of it then.

    Attempts that overlap hold no more cores together than the pilot has: each counts in proportion.
    """
    costs: Costs = defaultdict(CoreSeconds)
    for begin, end, phase in _phases(life, max(since, life.cores_from), until):
        own = costs[CostKey(life.ce, _hour(begin), life.owner, life.group)]
        cores = life.processors * (end - begin)
        if phase is _CostPhase.STARTUP:
            own.startup += cores
        elif phase is _CostPhase.LOST:
            own.lost += cores
        else:
            payload = _payload(life.processors, begin, end, held)
            own.idle += max(0.0, cores - sum(payload.values()))
            for (owner, group), seconds in payload.items():
                costs[CostKey(life.ce, _hour(begin), owner, group)].payload += seconds
    return dict(costs)


def add_costs(total: Costs, more: Mapping[CostKey, CoreSeconds]) -> None:
    """Add `more` to `total`."""
    for key, seconds in more.items():
        if key in total:
            total[key].add(seconds)
        else:
            total[key] = CoreSeconds(seconds.payload, seconds.startup, seconds.idle, seconds.lost)


def total_of(costs: Mapping[CostKey, CoreSeconds]) -> CoreSeconds:
    """All of these core-seconds together."""
    total = CoreSeconds()
    for seconds in costs.values():
        total.add(seconds)
    return total


def _hour(instant: float) -> int:
    return floor(instant / HOUR) * HOUR


def _phases(life: PilotLife, since: float, until: float) -> Iterator[tuple[float, float, _CostPhase]]:
    """Split [since, until) so that each part lies in one hour and in one phase."""
    instants = {since, until}
    instants.update(float(hour) for hour in range(_hour(since) + HOUR, _hour(until) + HOUR, HOUR))
    instants.update(
        instant for instant in (life.called, life.silent_from, life.silent_until) if instant is not None
    )
    parts = sorted(instant for instant in instants if since <= instant <= until)
    for begin, end in pairwise(parts):
        yield begin, end, _phase_at(life, begin)


def _phase_at(life: PilotLife, instant: float) -> _CostPhase:
    if life.called is None:
        return _CostPhase.LOST
    if instant < life.called:
        return _CostPhase.STARTUP
    silent_until = inf if life.silent_until is None else life.silent_until
    is_silent = life.silent_from is not None and life.silent_from <= instant < silent_until
    return _CostPhase.LOST if is_silent else _CostPhase.WORK


def _payload(cores: int, begin: float, end: float, held: Iterable[HeldCores]) -> dict[tuple[str, str], float]:
    """(owner, group) → core-seconds that their attempts held in [begin, end), at most all."""
    changes: list[tuple[float, int, tuple[str, str]]] = []
    for attempt in held:
        first, last = max(begin, attempt.begin), end if attempt.end is None else min(end, attempt.end)
        if first < last:
            who = (attempt.owner, attempt.group)
            changes += [(first, attempt.processors, who), (last, -attempt.processors, who)]
    changes.sort()
    seconds: dict[tuple[str, str], float] = defaultdict(float)
    holding: Counter[tuple[str, str]] = Counter()
    before = begin
    for instant, change, who in changes:
        if instant > before:
            used = holding.total()
            part = (instant - before) * (min(1.0, cores / used) if used else 0.0)
            for holder, processors in holding.items():
                seconds[holder] += processors * part
            before = instant
        holding[who] += change
        if not holding[who]:
            del holding[who]
    return seconds
