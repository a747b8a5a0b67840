"""The limits in force on one of several servers: jobs start within its allocations (limit_leases.py)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from pilotage.core.queues import limit_leases
from pilotage.core.queues.identity import QueueIdentity
from pilotage.core.queues.limit_leases import Allocation, UnleasedRoom
from pilotage.core.queues.limits import Limit, Limiter, LimitStatus

Key = tuple[str, str, str, str]


@dataclass(slots=True)
class SharedLimiter(Limiter):
    """Allocations change with local starts and ends, and the caller saves them. The other facts are only read."""

    states: dict[Key, UnleasedRoom] = field(default_factory=dict)
    mine: dict[Key, Allocation] = field(default_factory=dict)
    others: dict[Key, tuple[Allocation, ...]] = field(default_factory=dict)
    wanted: set[Key] = field(default_factory=set)
    """Limits that refused a pilot since the caller last cleared this set."""
    used: set[Key] = field(default_factory=set)
    """Limits under which a job started since the caller last cleared this set."""
    kept: dict[Key, float] = field(default_factory=dict)
    """The instant of the last loan or start under each limit."""
    changed: set[Key] = field(default_factory=set)
    """Allocations that are not saved yet."""

    def read(
        self,
        states: Mapping[Key, UnleasedRoom],
        mine: Mapping[Key, Allocation],
        others: Mapping[Key, tuple[Allocation, ...]],
    ) -> None:
        """Replace all state by the present rows of the store."""
        self.states, self.mine, self.others = dict(states), dict(mine), dict(others)
        self.changed.clear()

    def replace_limits(self, limits: Iterable[Limit]) -> None:
        self.limits = tuple(limits)

    def recount(self, held: Iterable[tuple[QueueIdentity, str, str, int]]) -> None:
        raise AssertionError("shared limits are counted in the store")

    def closed_limits(self, site: str, ce: str, now: float) -> list[Limit]:
        closed = Limiter.closed_limits(self, site, ce, now)
        self.wanted.update(limit.key for limit in closed)
        return closed

    def exhausted_limits(self, site: str, ce: str, now: float) -> list[Limit]:
        here = [limit for limit in self.limits if limit.applies_at(site, ce)]
        statuses = [(limit, self.status(limit, now)) for limit in here]
        return [limit for limit, held in statuses if held.full or held.wait > 0]

    def status(self, limit: Limit, now: float) -> LimitStatus:
        shared, mine = self.states.get(limit.key), self.mine.get(limit.key, Allocation())
        others = self.others.get(limit.key, ())
        if shared is None:
            return LimitStatus(limit, 0, True, 0.0)
        having = [mine, *others]
        running, full = 0, False
        if limit.running is not None:
            running = limit.running - shared.free - sum(allocation.free for allocation in having)
            full = running >= limit.running
        wait = 0.0
        if limit.delay:
            filled = limit_leases.refill(limit, shared, having, now)
            missing = 1 - filled.starts - sum(allocation.starts for allocation in having)
            wait = max(0.0, missing * limit.delay)
        return LimitStatus(limit, running, full, wait)

    def record_start(self, queue: QueueIdentity, site: str, ce: str, now: float) -> None:
        for limit in self._limits_on(queue, site, ce):
            self._change(limit, limit_leases.record_start(limit, self.mine.get(limit.key, Allocation()), now))
            self.used.add(limit.key)

    def record_end(self, queue: QueueIdentity, site: str, ce: str) -> None:
        for limit in self._limits_on(queue, site, ce):
            self._change(limit, limit_leases.record_end(limit, self.mine.get(limit.key, Allocation())))

    def _change(self, limit: Limit, allocation: Allocation) -> None:
        if allocation != self.mine.get(limit.key):
            self.mine[limit.key] = allocation
            self.changed.add(limit.key)

    def _is_open(self, limit: Limit, now: float) -> bool:
        return limit_leases.may_start(
            limit, self.states.get(limit.key), self.mine.get(limit.key, Allocation())
        )
