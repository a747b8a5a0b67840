"""Running limits and start delays of a site or a CE, checked with the match.

See docs/reference/rules.md, section 2. DIRAC calls this the Limiter.
A limit names one attribute of the queue identity and a value: at most `running` such jobs there, and
one start every `delay` seconds, with `burst` starts saved up at most. Counts are exact, since they change in the
same thread and transaction that matches.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from pilotage.core.jobs.request_types import REQUEST_TYPES
from pilotage.core.queues.identity import QueueIdentity

ATTRIBUTES = ("owner", "group", "setup", "job_type", "cpu_time", "processors", "platforms", "tags")
"""Attributes of the queue identity that a limit may name."""


@dataclass(frozen=True, slots=True)
class Limit:
    """One limit of the policy. `site` or `ce` is empty; `running` None and `delay` 0 mean no such limit.

    The empty job type stands for all types of requests.
    """

    attribute: str
    value: str
    site: str = ""
    ce: str = ""
    running: int | None = None
    delay: float = 0.0
    burst: int = 1

    def applies_to(self, queue: QueueIdentity) -> bool:
        if self.attribute == "job_type" and not self.value:
            return queue.job_type in REQUEST_TYPES
        actual = getattr(queue, self.attribute)
        return self.value in actual if isinstance(actual, frozenset) else str(actual) == self.value

    def applies_at(self, site: str, ce: str) -> bool:
        return (not self.site or self.site == site) and (not self.ce or self.ce == ce)

    @property
    def key(self) -> tuple[str, str, str, str]:
        return (self.site, self.ce, self.attribute, self.value)


@dataclass(slots=True)
class _Meter:
    """The usage of one limit. `starts_left` is as of `since`."""

    running: int = 0
    starts_left: float = 0.0
    since: float = 0.0
    fresh: bool = True


Rates = dict[tuple[str, str, str, str], tuple[float, float, bool]]
"""Starts left of each limit, the instant of that count, and whether nothing has started under it yet."""


@dataclass(frozen=True, slots=True)
class LimitStatus:
    """The usage of a limit: `running` jobs. Unless it is `full`, the next may start in `wait` seconds."""

    limit: Limit
    running: int
    full: bool
    wait: float


@dataclass(slots=True)
class Limiter:
    """The limits in force, and the jobs started under them."""

    limits: tuple[Limit, ...] = ()
    _meters: dict[tuple[str, str, str, str], _Meter] = field(default_factory=dict)

    def replace_limits(self, limits: Iterable[Limit]) -> None:
        """Apply the limits of a new policy. Counts and start times of limits that stay are kept."""
        self.limits = tuple(limits)
        known = {limit.key for limit in self.limits}
        self._meters = {key: meter for key, meter in self._meters.items() if key in known}

    def closed_limits(self, site: str, ce: str, now: float) -> list[Limit]:
        """The limits that let nothing more start at this place now."""
        return [
            limit for limit in self.limits if limit.applies_at(site, ce) and not self._is_open(limit, now)
        ]

    def exhausted_limits(self, site: str, ce: str, now: float) -> list[Limit]:
        """The limits that let nobody start anything at this place now."""
        return self.closed_limits(site, ce, now)

    def status(self, limit: Limit, now: float) -> LimitStatus:
        """How far a limit is used, and when it lets the next one start."""
        meter = self._meter(limit)
        full = limit.running is not None and meter.running >= limit.running
        missing = 1 - self._available_starts(limit, meter, now) if limit.delay else 0.0
        return LimitStatus(limit, meter.running, full, max(0.0, missing * limit.delay))

    def record_start(self, queue: QueueIdentity, site: str, ce: str, now: float) -> None:
        """One job of `queue` was matched there."""
        for limit in self._limits_on(queue, site, ce):
            meter = self._meter(limit)
            meter.running += 1
            if limit.delay:
                meter.starts_left = max(0.0, self._available_starts(limit, meter, now) - 1)
                meter.since, meter.fresh = now, False

    def record_end(self, queue: QueueIdentity, site: str, ce: str) -> None:
        """One job of `queue` is no longer held there."""
        for limit in self._limits_on(queue, site, ce):
            meter = self._meter(limit)
            meter.running = max(0, meter.running - 1)

    def rates(self) -> Rates:
        """The starts that each limit with a delay has left. They are kept in memory only."""
        return {
            key: (meter.starts_left, meter.since, meter.fresh)
            for key, meter in self._meters.items()
            if not meter.fresh
        }

    def restore(self, rates: Rates) -> None:
        """Restore the state that `rates` returned."""
        for key, meter in self._meters.items():
            meter.starts_left, meter.since, meter.fresh = rates.get(key, (0.0, 0.0, True))

    def recount(self, held: Iterable[tuple[QueueIdentity, str, str, int]]) -> None:
        """Set the running counts from the store: (queue, site, ce, how many jobs)."""
        for meter in self._meters.values():
            meter.running = 0
        for queue, site, ce, count in held:
            for limit in self._limits_on(queue, site, ce):
                self._meter(limit).running += count

    def _limits_on(self, queue: QueueIdentity, site: str, ce: str) -> Iterable[Limit]:
        return (limit for limit in self.limits if limit.applies_at(site, ce) and limit.applies_to(queue))

    def _meter(self, limit: Limit) -> _Meter:
        return self._meters.setdefault(limit.key, _Meter())

    def _is_open(self, limit: Limit, now: float) -> bool:
        meter = self._meter(limit)
        if limit.running is not None and meter.running >= limit.running:
            return False
        return not limit.delay or self._available_starts(limit, meter, now) >= 1

    def _available_starts(self, limit: Limit, meter: _Meter, now: float) -> float:
        if meter.fresh:
            return float(limit.burst)
        # After a clock that stepped back the wait is counted from there, or it would last as long as the step.
        meter.since = min(meter.since, now)
        # Rounding must not close a limit at the very instant that opens it.
        gained = (now - meter.since) / limit.delay + 1e-9
        return min(float(limit.burst), meter.starts_left + max(0.0, gained))
