"""Changes of attempts in one transaction, saved in bulk by `JobTransitions`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from pilotage.core.ids import JobId
from pilotage.core.jobs.states import CONFIRMED
from pilotage.core.short_text import cut_middle
from pilotage.services.pool.state import Pool
from pilotage.store.tables import attempts, usage
from pilotage.store.tables.jobs import JobRow
from pilotage.store.tables.pilots import PilotRow
from pilotage.store.writer.transaction import Transaction
from pilotage.wire.pilot import Finish

MESSAGE_BYTES = 2000
"""Maximum length of a pilot's message about a failure; the rest is cut."""

Saver = tuple[Callable[[Any, Any], None], list[Any]]
"""A function that saves rows, and the rows."""


@dataclass(slots=True)
class AttemptChanges:
    """Collects the changes; each kind is saved by one statement.

    Only the time from the start of the payload counts as use. An attempt that a pilot took ahead has none before it.
    """

    pool: Pool
    tx: Transaction
    now: float
    _resumed: list[attempts.ResumedAttempt] = field(default_factory=list)
    _confirmed: list[attempts.StartedAttempt] = field(default_factory=list)
    _started: list[attempts.BegunAttempt] = field(default_factory=list)
    _closed: list[attempts.FinishedAttempt] = field(default_factory=list)
    _cut: list[attempts.InterruptedAttempt] = field(default_factory=list)
    _results: list[attempts.Result] = field(default_factory=list)

    def savers(self) -> tuple[Saver, ...]:
        """In the order in which an attempt goes through them."""
        return (
            (usage.save_resumed, self._resumed),
            (attempts.save_started, self._confirmed),
            (attempts.save_begun, self._started),
            (attempts.save_finished, self._closed),
            (attempts.save_interrupted, self._cut),
            (attempts.save_results, self._results),
        )

    def confirm(self, job: JobRow, pilot: PilotRow, *, ahead: bool) -> None:
        """Its pilot has confirmed the job, and starts it now or later."""
        at = self._instant()
        queue = self.pool.queues.identity(self.tx, job.queue)
        ce = self.pool.policy.ces.get(pilot.ce)
        self._confirmed.append(
            attempts.StartedAttempt(
                job.id,
                job.epoch,
                job.attempt + 1,
                pilot.id,
                at,
                queue.processors,
                queue.owner,
                queue.group,
                pilot.site,
                ce.cpu_power if ce else 1.0,
                *((1, at) if ahead else ()),
            )
        )

    def start(self, job: JobRow, ran: float) -> None:
        """The payload of a job that was taken ahead started `ran` seconds ago."""
        self._started.append(attempts.BegunAttempt(self._instant(ran), job.id, job.epoch))

    def resume(self, job: JobRow) -> None:
        """An attempt that ended with the lease of its pilot goes on."""
        self._resumed.append(attempts.ResumedAttempt(job.id, job.epoch))

    def close(self, finish: Finish, outcome: str, failure: str) -> None:
        """The payload has ended by itself."""
        self._closed.append(
            attempts.FinishedAttempt(
                self._instant(),
                outcome,
                finish.exit_code,
                failure,
                cut_middle(finish.message, MESSAGE_BYTES),
                finish.wall,
                finish.cpu,
                finish.max_rss,
                JobId(finish.job),
                finish.epoch,
                self._instant(finish.download + finish.wall + finish.upload),
            )
        )

    def cut(self, job: JobRow, outcome: str, ran: float | None = None) -> None:
        """The attempt of a held job has ended without a result.

        `ran`: seconds that its payload ran, 0 if it never began; None: its pilot does not tell.
        """
        if job.state in CONFIRMED:
            begun = attempts.NOT_TOLD if ran is None else self._instant(ran) if ran > 0 else attempts.NEVER
            self._cut.append(attempts.InterruptedAttempt(self._instant(), outcome, job.id, job.epoch, begun))

    def result(self, result: attempts.Result) -> None:
        self._results.append(result)

    def _instant(self, ago: float = 0.0) -> float:
        """An instant, but none before use that may be charged."""
        return self.pool.server.attempt_instant(self.now - ago)
