"""How long things are kept: old jobs leave the hot table, and what is too old goes, a slice at a time.

Low priority: a slice is one short request to the writer, made as large as fits `SLICE`, and followed by a pause.
Where tables are divided into months, one that is too old as a whole goes as a whole, not by the writer.
Files go after the commit that removed their rows; what is to go stands in the store until it has gone.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from pilotage.core.policy import Policy
from pilotage.store.engine.connection import Connection
from pilotage.store.tables import history, retention

SLICE = 0.002
"""Seconds that a slice should take in the writer's thread: no write takes over 5 ms."""

PART = 0.1
"""At most this part of the writer's time."""

FIRST, LEAST, MOST = 100, 50, 2000
"""Rows of a slice: at first, and bounds."""

PERIOD = 10.0
"""Seconds between two looks at the hot table."""

LONGEST_PERIOD = 3600.0


@dataclass(frozen=True, slots=True)
class Rule:
    """The retention of one kind of things."""

    name: str
    keeps: Callable[[Policy], float]
    """For how many seconds."""
    step: Callable[[Connection, Sequence[Any], float, int], int]
    """(connection, what `find` gave, before, most): see to at most so many rows; how many it were."""
    find: Callable[[Connection, float], Sequence[Any]] | None = None
    """What no index finds is looked for on a reader's connection: (connection, before) to keys for `step`."""
    month: Callable[[Connection, float], int | None] | None = None
    """(connection, before), in a transaction of its own: see to one month as a whole; how many rows are done with,
    None: there was no such month."""

    def period(self, policy: Policy) -> float:
        """Seconds between two looks."""
        if self.name == "hot":
            return PERIOD
        return min(LONGEST_PERIOD, max(PERIOD, self.keeps(policy) / 10))


def _move(connection: Connection, _: Sequence[Any], before: float, most: int) -> int:
    return history.archive(connection, before, most)


def _outputs(connection: Connection, _: Sequence[Any], before: float, most: int) -> int:
    """Only of jobs in history, in the order of their end: how far it has come is one instant."""
    begin = retention.until(connection, "outputs")
    outside = history.oldest_unarchived_end(connection)
    before = before if outside is None else min(before, outside)
    found = history.ended_between(connection, begin, before, most)
    if found:
        jobs = [job for job, _ in found]
        history.delete_results(connection, [job.job for job in jobs])
        retention.schedule_removal(connection, "tries", jobs)
        retention.save_until(connection, "outputs", math.nextafter(found[-1][1], math.inf))
    return len(found)


def _jobs(connection: Connection, _: Sequence[Any], before: float, most: int) -> int:
    gone = history.delete_dependents(connection, most) or history.delete_expired(connection, before, most)
    retention.schedule_removal(connection, "jobs", gone)
    return len(gone)


def _month_of_jobs(connection: Connection, before: float) -> int | None:
    """Out of history at once; what hangs on its jobs goes in slices (`_jobs`), itself after that."""
    if history.drop_detached_month(connection):
        return 0
    month = history.expired_month(connection, before)
    if month is None:
        return None
    history.detach_month(connection, month)
    return 0


def _attempts(connection: Connection, _: Sequence[Any], before: float, most: int) -> int:
    return retention.delete_attempts(connection, before, most)


def _events(connection: Connection, _: Sequence[Any], before: float, most: int) -> int:
    return retention.delete_events(connection, before, most)


def _reasons(connection: Connection, found: Sequence[Any], before: float, most: int) -> int:
    return retention.delete_reasons(connection, found[:most])


def _pilots(connection: Connection, found: Sequence[Any], before: float, most: int) -> int:
    stamps = retention.delete_pilots(connection, found[:most], before)
    retention.schedule_removal(connection, "pilots", stamps)
    return len(found[:most])


def _find_uploads(connection: Connection, before: float) -> Sequence[Any]:
    old = retention.expired_uploads(connection, before)
    if not old:
        return []
    named = retention.referenced_inputs(connection, old)
    return [(digest, named.last) for digest in sorted(old - named.digests)]


def _uploads(connection: Connection, found: Sequence[Any], before: float, most: int) -> int:
    part = found[:most]
    gone = (
        retention.delete_uploads(connection, [digest for digest, _ in part], before, part[0][1])
        if part
        else []
    )
    retention.schedule_removal(connection, "inputs", gone)
    return len(part)


RULES = (
    Rule("hot", lambda policy: policy.retention.hot, _move),
    Rule("outputs", lambda policy: policy.retention.outputs, _outputs),
    Rule("jobs", lambda policy: policy.retention.jobs, _jobs, month=_month_of_jobs),
    Rule("attempts", Policy.attempt_retention, _attempts),
    Rule("events", lambda policy: policy.retention.events, _events, month=retention.drop_month_of_events),
    Rule("reasons", lambda policy: policy.retention.reasons, _reasons, retention.expired_reasons),
    Rule("pilots", Policy.pilot_retention, _pilots, retention.expired_pilots),
    Rule("uploads", lambda policy: policy.retention.uploads, _uploads, _find_uploads),
)
"""In this order in a cycle."""


def drop_month(connection: Connection, rule: Rule, before: float, now: float) -> bool:
    """In a transaction of its own: see to one month as a whole; whether there was one.

    Raises `Overloaded` where locks cannot be had now: to be tried again later, and until then it goes in slices.
    """
    rows = rule.month(connection, before) if rule.month is not None else None
    if rows:
        retention.add_progress(connection, rule.name, now, rows)
    return rows is not None


@dataclass(frozen=True, slots=True)
class SliceResult:
    """What one slice has done."""

    rows: int
    seconds: float
    """In the writer's thread, without the commit."""
    last: bool
    """Nothing is left to be done."""


@dataclass(slots=True)
class Slicer:
    """Cuts slices that take about `SLICE`; it learns from each how many rows these are."""

    timer: Callable[[], float]
    """Seconds, of any beginning."""
    sizes: dict[str, int] = field(default_factory=dict)

    def size(self, rule: Rule) -> int:
        return self.sizes.get(rule.name, FIRST)

    def cut(
        self, connection: Connection, rule: Rule, found: Sequence[Any], before: float, now: float
    ) -> SliceResult:
        """One slice, in the writer's thread."""
        size, begin = self.size(rule), self.timer()
        rows = rule.step(connection, found, before, size)
        if rows:
            retention.add_progress(connection, rule.name, now, rows)
        seconds = self.timer() - begin
        self._learn(rule, size, rows, seconds)
        return SliceResult(rows, seconds, rows < size)

    def _learn(self, rule: Rule, size: int, rows: int, seconds: float) -> None:
        if not rows or (rows < size and seconds <= SLICE):
            return
        fits = round(rows * SLICE / seconds) if seconds > 0 else MOST
        self.sizes[rule.name] = max(LEAST, min(fits, 2 * size, MOST))


def pause(seconds: float) -> float:
    """How long to leave the writer alone after a slice that took so long, its commit included."""
    return seconds * (1 / PART - 1)
