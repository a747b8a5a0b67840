"""Ends a run in which no job can start any more, with a sentence about the jobs that wait."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from pilotage.core.jobs.durations import format_duration
from pilotage.core.jobs.states import FINAL
from pilotage.core.plurals import plural
from pilotage.core.policy import Policy
from pilotage.core.policy.budget import parse_budget
from pilotage.core.queues.indexed_queue import IndexedQueue
from pilotage.server.context import Context
from pilotage.server.duties.wait_reasons import snapshot
from pilotage.services.why.answer import why_queue
from pilotage.store.tables import listing
from pilotage.store.tables.selections import JobSelection, Viewer
from pilotage.twin.books import Books
from pilotage.twin.ces import TwinCe

PATIENCE = 6 * 3600.0
"""Virtual seconds without a start or an end of a job, besides the pauses that the policy and the CEs themselves set."""
QUEUES_TOLD: Final = 3
AT_ONCE: Final = 500
_EVERYBODY: Final = Viewer("", everything=True)


def longest_pause(policy: Policy, ces: Sequence[TwinCe]) -> float:
    """Virtual seconds after which no job starts any more, if none has started or ended meanwhile and none runs.

    Some pauses may last longer than `PATIENCE`: waits in a batch system, windows of budgets, delays of limits and of
    retries, and leases of dead pilots. So the longest one of each kind is added.
    """
    kinds: list[list[float]] = [
        [ce.waits[-1] for ce in ces if ce.waits],
        [parse_budget(ce.budget).window for ce in policy.ces.values() if ce.budget],
        [limit.delay for limit in policy.limits],
        [ce.lease + ce.settle for ce in policy.ces.values()],
        [policy.jobs.retry_delay + policy.jobs.offer_timeout],
    ]
    return PATIENCE + sum(max(pauses, default=0.0) for pauses in kinds)


class StandstillWatch:
    """Sees when the jobs that still wait will wait for ever. It looks after the last submission."""

    def __init__(self, books: Books, pause: float) -> None:
        self._books, self._pause = books, pause
        self._seen = -1
        self._since = 0.0

    def is_over(self, now: float) -> bool:
        """Whether no job runs, and none has started or ended for too long."""
        if self._books.running or self._books.moves != self._seen:
            self._seen, self._since = self._books.moves, now
        return now - self._since >= self._pause

    async def sentence(self, context: Context) -> str:
        """The number of jobs that wait, and the reason as the server's `why` gives it."""
        now = context.clock()
        taken = await snapshot(context, now)
        waiting = [entry for entry in taken.analysis.entries if entry.waiting]
        waiting.sort(key=lambda entry: -entry.waiting)
        reasons: dict[str, list[IndexedQueue]] = {}
        for entry in waiting[: 10 * QUEUES_TOLD]:
            answer = why_queue(taken, context.readers.connection(), entry.id, now)
            reasons.setdefault(answer.summary, []).append(entry)
        reasons_told = [f"{_whose(entries)}: {why}" for why, entries in list(reasons.items())[:QUEUES_TOLD]]
        jobs = self._books.open
        return (
            f"no job has started or ended for {format_duration(now - self._since)}, and {plural(jobs, 'job')} still"
            f" {'waits' if jobs == 1 else 'wait'}. {'. '.join(reasons_told)}"
        )


def _whose(entries: Sequence[IndexedQueue]) -> str:
    first = entries[0].identity
    jobs = plural(sum(entry.waiting for entry in entries), "job")
    others = f" and of {plural(len(entries) - 1, 'further task queue')}" if len(entries) > 1 else ""
    return f"{jobs} of {first.owner} ({first.group}){others}"


def close_given_up(books: Books, context: Context) -> None:
    """Take the end of jobs that the server has given up: no pilot told the books of it."""
    tried = sorted(books.interrupted)
    for first in range(0, len(tried), AT_ONCE):
        selection = JobSelection(ids=tried[first : first + AT_ONCE], states=sorted(FINAL))
        for job in listing.jobs(context.readers.connection(), selection, _EVERYBODY, 0, AT_ONCE):
            books.given_up(job.id, context.clock() if job.ended is None else job.ended)
