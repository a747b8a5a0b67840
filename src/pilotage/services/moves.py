"""The moves of jobs in one transaction: each checked against the table, logged, told to the index, saved in bulk."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from pilotage.core.handover import THE_PAYLOADS_OWN
from pilotage.core.ids import JobId
from pilotage.core.jobs.states import FINAL, JOB_STATES, JobState
from pilotage.services.pool import Pool
from pilotage.store import attempts, jobs
from pilotage.store.events import EventBatch
from pilotage.store.jobs import JobRow
from pilotage.store.pilots import PilotRow
from pilotage.store.writer import Transaction


def counted(job: JobRow, failure: str) -> JobRow:
    """The job with one more failed try."""
    if failure in THE_PAYLOADS_OWN:
        return job._replace(own_failures=job.own_failures + 1)
    return job._replace(failures=job.failures + 1)


_WITH_PILOT = frozenset({JobState.MATCHED, JobState.RUNNING, JobState.STALLED, JobState.COMPLETING})


@dataclass(slots=True)
class Moves:
    """Collects what one request does to jobs; `write` saves it, events included."""

    pool: Pool
    tx: Transaction
    now: float
    events: EventBatch
    _offered: list[jobs.Offered] = field(default_factory=list)
    _held: list[jobs.Held] = field(default_factory=list)
    _freed: list[jobs.Freed] = field(default_factory=list)
    _ended: list[jobs.Ended] = field(default_factory=list)
    _moved: list[jobs.Moved] = field(default_factory=list)
    _counted: list[jobs.Counted] = field(default_factory=list)
    _finishes: list[jobs.FinishTaken] = field(default_factory=list)
    _begun: list[attempts.Begun] = field(default_factory=list)
    _closed: list[attempts.Closed] = field(default_factory=list)
    _cut: list[attempts.Cut] = field(default_factory=list)
    _results: list[attempts.Result] = field(default_factory=list)

    def write(self) -> None:
        """Save everything collected so far, in the order in which one job can make several moves."""
        connection = self.tx.connection
        savers: tuple[tuple[Callable[[Any, Any], None], list[Any]], ...] = (
            (jobs.save_finish_taken, self._finishes),
            (jobs.save_ended, self._ended),
            (jobs.save_freed, self._freed),
            (jobs.save_moved, self._moved),
            (jobs.save_counted, self._counted),
            (jobs.save_held, self._held),
            (jobs.save_offered, self._offered),
            (attempts.save_begun, self._begun),
            (attempts.save_closed, self._closed),
            (attempts.save_cut, self._cut),
            (attempts.save_results, self._results),
        )
        for save, rows in savers:
            if rows:
                save(connection, rows)
                rows.clear()
        self.events.write(connection)

    def offer(self, job: JobRow, pilot: PilotRow, take_number: int) -> None:
        """Waiting → Matched. The index has given the job out already."""
        event = self._event("offered", job, JobState.MATCHED, job.epoch + 1, f"pilot {pilot.id}")
        self._offered.append(jobs.Offered(pilot.id, take_number, self.now, event, job.id))
        self.pool.touch_limits(self.tx)
        identity = self.pool.queue_identity(self.tx, job.queue)
        self.pool.limiter.started(identity, pilot.site, pilot.ce, self.now)

    def hold(self, job: JobRow, pilot: PilotRow) -> None:
        """Matched → Running."""
        event = self._event("confirmed", job, JobState.RUNNING, job.epoch)
        self._held.append(jobs.Held(self.now, event, job.id))
        queue = self.pool.queue_identity(self.tx, job.queue)
        ce = self.pool.policy.ces.get(pilot.ce)
        self._begun.append(
            attempts.Begun(
                job.id,
                job.epoch,
                job.attempt + 1,
                pilot.id,
                self.now,
                queue.processors,
                queue.owner,
                queue.group,
                pilot.site,
                ce.cpu_power if ce else 1.0,
            )
        )

    def free(self, job: JobRow, kind: str, reason: str, place: PilotRow | None) -> None:
        """Back to the queue at once; counts as nothing. `place` is where it was."""
        self._left(job, place)
        previous = job
        if job.state is not JobState.MATCHED:
            event = self._event(kind, job, JobState.RESCHEDULED, job.epoch, reason)
            self._cut.append(attempts.Cut(self.now, kind, job.id, job.epoch))
            previous = job._replace(state=JobState.RESCHEDULED, last_event=event)
            kind, reason = "requeued", ""
        event = self._event(kind, previous, JobState.WAITING, job.epoch, reason)
        self._freed.append(
            jobs.Freed(JobState.WAITING, None, job.failures, job.own_failures, "", event, job.id)
        )
        self._returned(job)

    def retry(self, job: JobRow, kind: str, reason: str, place: PilotRow | None) -> None:
        """To Rescheduled, until the delay of the policy is over."""
        self._left(job, place)
        event = self._event(kind, job, JobState.RESCHEDULED, job.epoch, reason)
        later = self.now + self.pool.policy.jobs.retry_delay
        self._freed.append(
            jobs.Freed(JobState.RESCHEDULED, later, job.failures, job.own_failures, reason, event, job.id)
        )

    def requeue(self, job: JobRow) -> None:
        """Rescheduled → Waiting."""
        event = self._event("requeued", job, JobState.WAITING, job.epoch)
        self._freed.append(
            jobs.Freed(JobState.WAITING, None, job.failures, job.own_failures, "", event, job.id)
        )
        self._returned(job)

    def end(
        self,
        job: JobRow,
        kind: str,
        new: JobState,
        reason: str,
        place: PilotRow | None,
        *,
        exit_code: int | None = None,
    ) -> None:
        """To a final state."""
        assert new in FINAL
        self._left(job, place)
        event = self._event(kind, job, new, job.epoch, reason)
        self._ended.append(
            jobs.Ended(new, job.failures, job.own_failures, reason, exit_code, self.now, event, job.id)
        )

    def move(self, job: JobRow, kind: str, new: JobState, reason: str = "") -> None:
        """A move that changes nothing but the state."""
        event = self._event(kind, job, new, job.epoch, reason)
        self._moved.append(jobs.Moved(new, reason, event, job.id))

    def count(self, job: JobRow) -> None:
        """Remember how many tries have failed, of a job that stays where it is."""
        self._counted.append(jobs.Counted(job.failures, job.own_failures, job.id))

    def finish_taken(self, job: JobId, epoch: int, digest: str) -> None:
        self._finishes.append(jobs.FinishTaken(epoch, digest, job))

    def close_attempt(self, closed: attempts.Closed) -> None:
        self._closed.append(closed)

    def cut_attempt(self, job: JobRow, outcome: str) -> None:
        if job.state in _WITH_PILOT and job.state is not JobState.MATCHED:
            self._cut.append(attempts.Cut(self.now, outcome, job.id, job.epoch))

    def result(self, result: attempts.Result) -> None:
        self._results.append(result)

    def _event(self, kind: str, job: JobRow, new: JobState, epoch: int, detail: str = "") -> int:
        JOB_STATES.check(job.state, new)
        return self.events.add(kind, job.state, new, job.id, epoch, job.last_event, detail)

    def _left(self, job: JobRow, place: PilotRow | None) -> None:
        """The job leaves what it was in: a queue, or a pilot."""
        if job.state is JobState.WAITING:
            self.pool.touch_queue(self.tx, job.queue)
            self.pool.index.job_gone(job.queue, job.user_priority, job.id)
        elif job.state in _WITH_PILOT and place is not None:
            self.pool.touch_limits(self.tx)
            identity = self.pool.queue_identity(self.tx, job.queue)
            self.pool.limiter.ended(identity, place.site, place.ce)

    def _returned(self, job: JobRow) -> None:
        self.pool.touch_queue(self.tx, job.queue)
        self.pool.index.job_returned(job.queue, job.user_priority, job.id)
