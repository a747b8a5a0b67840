"""Retention: archive ended jobs from the hot table, and delete expired rows and files in slices.

Retention has low priority. A slice is one short request to the writer, sized to take `SLICE`, followed by a pause.
If a table is partitioned by months, an expired month is dropped at once, in a session beside the writer. Files are
removed after the commit that deleted their rows. The store lists them until they have been removed.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from pilotage.core.intervals import KEPT, SPANS
from pilotage.core.policy import Policy
from pilotage.core.slice_pace import SlicePace
from pilotage.store.engine.connection import Connection
from pilotage.store.tables import audit_log, costs, handed_outputs, history, intervals, retention

SLICE = 0.002
"""Seconds that a slice should take in the writer's thread, so that no write takes over 5 ms."""

FIRST_SIZE, MIN_SIZE, MAX_SIZE = 100, 50, 2000
"""Rows of a slice: the first size, and the bounds."""

PERIOD = 10.0
"""Seconds between two scans of the hot table."""

LONGEST_PERIOD = 3600.0


@dataclass(frozen=True, slots=True)
class Rule:
    """The retention of one kind of row."""

    name: str
    keeps: Callable[[Policy], float]
    """Seconds for which a policy keeps these rows."""
    step: Callable[[Connection, Sequence[Any], float, int], int]
    """(connection, keys from `find`, before, limit): archive or delete at most `limit` rows. Returns their number."""
    find: Callable[[Connection, float], Sequence[Any]] | None = None
    """(connection, before): keys for `step`, where no index finds the rows. Called on a reader's connection."""
    month: Callable[[Connection, float], int | None] | None = None
    """(connection, before): drop one expired month, in its own transaction. Returns the number of rows done with.
    None: no month has expired."""

    def period(self, policy: Policy) -> float:
        """Seconds between two runs of the rule."""
        if self.name == "hot":
            return PERIOD
        return min(LONGEST_PERIOD, max(PERIOD, self.keeps(policy) / 10))


def _archive(connection: Connection, _: Sequence[Any], before: float, most: int) -> int:
    return history.archive(connection, before, most)


def _outputs(connection: Connection, _: Sequence[Any], before: float, most: int) -> int:
    """Delete results of archived jobs, in the order of their end. The progress is therefore one instant."""
    begin = retention.until(connection, "outputs")
    unarchived = history.oldest_unarchived_end(connection)
    before = before if unarchived is None else min(before, unarchived)
    ended = history.ended_between(connection, begin, before, most)
    if ended:
        kept = handed_outputs.keep(connection, [job.job for job, _ in ended])
        _delete_outputs(connection, [job for job, _ in ended if job.job not in kept])
        retention.save_until(connection, "outputs", math.nextafter(ended[-1][1], math.inf))
    return len(ended)


def _handed_outputs(connection: Connection, keys: Sequence[Any], _: float, most: int) -> int:
    """Delete expired outputs that no other job reads any more."""
    unread = handed_outputs.end_readers(connection, keys[:most])
    _delete_outputs(connection, [history.JobEpoch(job, epoch) for job, epoch in unread])
    return len(keys[:most])


def _delete_outputs(connection: Connection, jobs: Sequence[history.JobEpoch]) -> None:
    history.delete_results(connection, [job.job for job in jobs])
    retention.schedule_removal(connection, "tries", jobs)


def _jobs(connection: Connection, _: Sequence[Any], before: float, most: int) -> int:
    gone = history.delete_dependents(connection, most) or history.delete_expired(connection, before, most)
    retention.schedule_removal(connection, "jobs", gone)
    return len(gone)


def _month_of_jobs(connection: Connection, before: float) -> int | None:
    """Detach an expired month from the history. It is dropped when `_jobs` has deleted the dependent rows in slices."""
    if history.drop_detached_month(connection):
        return 0
    month = history.expired_month(connection, before)
    if month is None:
        return None
    history.detach_month(connection, month)
    return 0


def _attempts(connection: Connection, _: Sequence[Any], before: float, most: int) -> int:
    return retention.delete_attempts(connection, before, most)


def _costs(connection: Connection, _: Sequence[Any], before: float, most: int) -> int:
    return costs.delete_before(connection, before, most)


def _events(connection: Connection, _: Sequence[Any], before: float, most: int) -> int:
    return retention.delete_events(connection, before, most)


def _audit(connection: Connection, _: Sequence[Any], before: float, most: int) -> int:
    return audit_log.delete_before(connection, before, most)


def _reasons(connection: Connection, keys: Sequence[Any], before: float, most: int) -> int:
    return retention.delete_reasons(connection, keys[:most])


def _intervals(span: int) -> Rule:
    """The rule of intervals of one length."""
    return Rule(
        f"intervals_{span}",
        lambda policy: min(policy.retention.reasons, KEPT.get(span, math.inf)),
        lambda connection, _, before, most: intervals.delete_before(connection, span, before, most),
    )


def _pilots(connection: Connection, keys: Sequence[Any], before: float, most: int) -> int:
    gone = retention.delete_pilots(connection, keys[:most], before)
    retention.schedule_removal(connection, "pilots", gone)
    return len(keys[:most])


def _find_uploads(connection: Connection, before: float) -> Sequence[Any]:
    old = retention.expired_uploads(connection, before)
    if not old:
        return []
    referenced = retention.referenced_inputs(connection, old)
    return [(digest, referenced.last) for digest in sorted(old - referenced.digests)]


def _uploads(connection: Connection, keys: Sequence[Any], before: float, most: int) -> int:
    part = keys[:most]
    gone = (
        retention.delete_uploads(connection, [digest for digest, _ in part], before, part[0][1])
        if part
        else []
    )
    retention.schedule_removal(connection, "inputs", gone)
    return len(part)


RULES = (
    Rule("hot", lambda policy: policy.retention.hot, _archive),
    Rule("outputs", lambda policy: policy.retention.outputs, _outputs),
    Rule(
        "handed_outputs",
        lambda policy: policy.retention.outputs,
        _handed_outputs,
        lambda connection, _: handed_outputs.ended_readers(connection),
    ),
    Rule("jobs", lambda policy: policy.retention.jobs, _jobs, month=_month_of_jobs),
    Rule("attempts", Policy.attempt_retention, _attempts),
    Rule("costs", Policy.attempt_retention, _costs),
    Rule("events", lambda policy: policy.retention.events, _events, month=retention.drop_month_of_events),
    Rule("audit", lambda policy: policy.retention.events, _audit),
    Rule("reasons", lambda policy: policy.retention.reasons, _reasons, retention.expired_reasons),
    *map(_intervals, SPANS),
    Rule("pilots", Policy.pilot_retention, _pilots, retention.expired_pilots),
    Rule("uploads", lambda policy: policy.retention.uploads, _uploads, _find_uploads),
)
"""The rules, in the order in which a cycle applies them."""


def drop_month(connection: Connection, rule: Rule, before: float, now: float) -> bool:
    """Drop one expired month, in its own transaction. Returns whether there was one.

    Raises `Overloaded` if the locks are not available. The caller tries again later; until then rows go in slices.
    """
    rows = rule.month(connection, before) if rule.month is not None else None
    if rows:
        retention.add_progress(connection, rule.name, now, rows)
    return rows is not None


@dataclass(frozen=True, slots=True)
class SliceResult:
    """The result of one slice."""

    rows: int
    last: bool
    """Whether the rule has no more rows to delete."""


def new_pace(clock: Callable[[], float]) -> SlicePace:
    """The pace of one rule's slices; `clock` returns monotonic seconds."""
    return SlicePace(SLICE, clock, first=FIRST_SIZE, least=MIN_SIZE, most=MAX_SIZE)


def run_slice(
    connection: Connection, rule: Rule, keys: Sequence[Any], before: float, now: float, pace: SlicePace
) -> SliceResult:
    """Run one slice of a rule. Called in the writer's thread."""
    size = pace.size
    rows = pace.measured(size, lambda: rule.step(connection, keys, before, size))
    if rows:
        retention.add_progress(connection, rule.name, now, rows)
    return SliceResult(rows, rows < size)
