"""State transitions of jobs in one transaction: checked, logged, applied to the index, and saved in bulk.

One `JobTransitions` serves all requests that share a transaction. It keeps the current rows of their jobs, so each
request sees the transitions of the earlier ones. Each kind of transition is saved by one statement.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from math import inf
from typing import Any

import msgspec

from pilotage.core.ids import JobId, PilotId, QueueId
from pilotage.core.jobs.request_types import REQUEST_TYPES
from pilotage.core.jobs.states import CONFIRMED, FINAL, JOB_STATES, JobState
from pilotage.core.queues.indexed_queue import Head, IndexedQueue
from pilotage.core.queues.offer_history import OfferRecord as Noted
from pilotage.services.jobs.attempt_changes import AttemptChanges, Saver
from pilotage.services.pool.state import Pool
from pilotage.store.tables import chains, job_outcomes, jobs, pilots
from pilotage.store.tables.attempts import LapsedAttempt
from pilotage.store.tables.events import EventBatch
from pilotage.store.tables.jobs import JobRow, WaitingJob
from pilotage.store.tables.pilots import PilotRow
from pilotage.store.writer.transaction import Transaction

_WITH_PILOT = CONFIRMED | {JobState.MATCHED}
JOB_STATES.check(JobState.WAITING, JobState.MATCHED)
_encode, _decode = msgspec.json.encode, msgspec.json.decode


@dataclass(slots=True)
class JobTransitions:
    """Collects the transitions of one transaction; `write` saves them with their events."""

    pool: Pool
    tx: Transaction
    now: float
    events: EventBatch
    pilot: PilotId | None = None
    """The pilot that causes the next transitions, if the actor of the events is `events.SEVERAL_PILOTS`."""
    rows: dict[int, JobRow] = field(default_factory=dict)
    """The loaded jobs in their current state."""
    lost: set[tuple[PilotId, JobId]] = field(default_factory=set)
    """Offers of jobs that no longer waited. These jobs were not changed."""
    noted: list[tuple[Noted[Any], bool]] = field(default_factory=list)
    """The kinds of offer with a recorded request, and whether they were given jobs."""
    _queues: dict[QueueId, Transaction] = field(init=False)
    """Queues that are reloaded if the transaction fails."""
    _pilots: dict[str | None, PilotRow] = field(init=False)
    """Pilots that are reloaded if the transaction fails."""
    moved_since: set[JobId] = field(default_factory=set)
    """Jobs with a transition that is not written yet."""
    offered_since: set[int] = field(default_factory=set)
    """Loaded jobs that were offered to a pilot since: their rows must be read again."""
    _offered: list[tuple[Any, ...]] = field(default_factory=list)
    """Values of `jobs.OfferedJobRow`, as tuples: they are made by the thousand."""
    _held: list[jobs.HeldJob] = field(default_factory=list)
    _freed: list[jobs.FreedJob] = field(default_factory=list)
    _resumed: list[jobs.ResumedJob] = field(default_factory=list)
    _ended: list[jobs.EndedJob] = field(default_factory=list)
    _outcomes: list[job_outcomes.JobEnd] = field(default_factory=list)
    _moved: list[jobs.StateChange] = field(default_factory=list)
    _relocated: list[jobs.MovedJob] = field(default_factory=list)
    _counted: list[jobs.FailureCounts] = field(default_factory=list)
    _finishes: list[jobs.AcceptedFinish] = field(default_factory=list)
    attempts: AttemptChanges = field(init=False)
    _taken: list[tuple[Any, ...]] = field(default_factory=list)
    """Values of `pilots.AnsweredTake`."""
    _parents: list[chains.ParentChange] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.tx.on_rollback(self._not_noted)
        self.pool.queues.flush_transitions = self._write_waiting
        self.attempts = AttemptChanges(self.pool, self.tx, self.now)
        self._queues, self._pilots = self.pool.queues.touched(self.tx), self.pool.pilots.rows.touched(self.tx)

    def _write_waiting(self) -> None:
        """Write before heads are read from the store, so that the store has exactly the jobs that wait.

        A job that the index counts but the store does not return would never be offered.
        """
        if self._freed or self._ended or self._relocated or self._resumed:
            self.write()

    def _not_noted(self) -> None:
        self.pool.queues.flush_transitions = None
        for noted, given in self.noted:
            noted.revert_take(given)

    def touch_pilot(self, pilot: PilotRow) -> None:
        """Drop the row of a pilot if the transaction fails: see `PilotCache.touch`."""
        self._pilots[pilot.token_hash] = pilot

    # --- the rows

    def load(self, ids: Iterable[int]) -> None:
        """Load the existing jobs among `ids` into `rows`."""
        missing = {job for job in ids if job not in self.rows}
        if missing:
            if not missing.isdisjoint(self.moved_since):
                self.write()
            self.rows.update(jobs.by_ids(self.tx.connection, sorted(missing)))

    def row(self, job: int) -> JobRow | None:
        """A loaded job in its current state; None: the job does not exist."""
        if job in self.offered_since:
            self.offered_since.discard(job)
            self.load((job,))
        return self.rows.get(job)

    def of_pilot(self, pilot: PilotId) -> list[JobRow]:
        """The jobs that are offered to a pilot or held by it."""
        self.write()
        rows = jobs.of_pilots(self.tx.connection, [pilot])
        self.rows.update((job.id, job) for job in rows)
        return rows

    def write(self) -> None:
        """Save everything collected so far."""
        connection = self.tx.connection
        if self._offered:
            lost = jobs.save_offered(connection, self._offered)
            if lost:
                self.lost |= {(offer[0], offer[4]) for offer in self._offered if offer[4] in lost}
                self.events.discard("offered", lost)
            self._offered.clear()
        savers: tuple[Saver, ...] = (
            (jobs.save_accepted_finishes, self._finishes),
            (jobs.save_ended, self._ended),
            (job_outcomes.append, self._outcomes),
            (jobs.save_freed, self._freed),
            (jobs.save_state_changes, self._moved),
            (jobs.save_moved, self._relocated),
            (jobs.save_failure_counts, self._counted),
            (jobs.save_held, self._held),
            (jobs.save_resumed, self._resumed),
            *self.attempts.savers(),
            (pilots.save_answered_takes, self._taken),
            (chains.add_changes, self._parents),
        )
        for save, rows in savers:
            if rows:
                save(connection, rows)
                rows.clear()
        self.moved_since.clear()
        self.events.write(connection)

    # --- transitions

    def offer(self, head: Head, entry: IndexedQueue, pilot: PilotRow, take_number: int) -> int:
        """Waiting → Matched for a job drawn from the index (values of `WaitingJob`). Returns its new epoch.

        Writing shows whether the job still waited: see `lost`.
        """
        job, epoch, last_event = head[0], int(head[2]) + 1, head[3]
        if job in self.moved_since:
            self.write()
        self.moved_since.add(job)
        self._queues[entry.id] = self.tx
        if self.rows.pop(job, None) is not None:
            self.offered_since.add(job)
        event = self.events.add(
            "offered", "Waiting", "Matched", job, head[1], epoch, last_event, "", pilot.id
        )
        self._offered.append((pilot.id, take_number, self.now, event, job, last_event))
        if self.pool.offers.limits.limiter.limits:
            self.pool.offers.limits.started(self.tx, entry.identity, pilot, self.now)
        return epoch

    def taken(self, pilot: PilotRow, number: int, given: Iterable[JobId]) -> None:
        """Record that request `number` of `pilot` is answered with an offer of these jobs, and touch the pilot."""
        self._pilots[pilot.token_hash] = pilot
        pilot.take_number = number
        pilot.jobs.extend(given)
        since = self.pool.pilots.unconfirmed.get(pilot.id, inf)
        if since > self.now:
            since = self.now
            self.tx.put(self.pool.pilots.unconfirmed, pilot.id, since)
        self._taken.append((number, pilot.only_owner, since, _encode(pilot.jobs).decode(), pilot.id))

    def hold(self, job: JobRow, pilot: PilotRow, *, ahead: bool = False) -> JobRow:
        """Matched → Running, or → Taken: the pilot starts it later."""
        new = JobState.TAKEN if ahead else JobState.RUNNING
        event = self._event("confirmed", job, new, job.epoch)
        self._held.append(jobs.HeldJob(new, self.now, event, job.id))
        self.attempts.confirm(job, pilot, ahead=ahead)
        return self._now(job, state=new, attempt=job.attempt + 1, last_event=event)

    def begin(self, job: JobRow, ran: float) -> JobRow:
        """Taken → Running: its payload started `ran` seconds ago."""
        row = self.move(job, "started", JobState.RUNNING)
        self.attempts.start(job, ran)
        return row

    def resume(self, job: JobRow, pilot: PilotRow, lapsed: LapsedAttempt) -> JobRow:
        """Rescheduled or Waiting → Running or Taken: the pilot that had the job has come back, and works on."""
        self._left(job, None)
        if self.pool.offers.limits.limiter.limits:
            identity = self.pool.queues.identity(self.tx, job.queue)
            self.pool.offers.limits.started(self.tx, identity, pilot, self.now)
        failures = job.failures - lapsed.counted
        new = JobState.TAKEN if lapsed.ahead else JobState.RUNNING
        event = self._event("resumed", job, new, job.epoch, f"pilot {pilot.id} has come back")
        self._resumed.append(jobs.ResumedJob(new, pilot.id, lapsed.started, failures, event, job.id))
        self.attempts.resume(job)
        self.touch_pilot(pilot)
        pilot.jobs = [*(held for held in pilot.jobs if held != job.id), job.id]
        pilots.update(self.tx.connection, pilot.id, jobs=_encode(pilot.jobs).decode())
        return self._now(job, state=new, last_event=event, pilot=pilot.id, failures=failures)

    def free(
        self, job: JobRow, kind: str, reason: str, place: PilotRow | None, ran: float | None = None
    ) -> None:
        """Return the job to its queue at once, without counting a failure. `place` is its pilot.

        `ran` as in `AttemptChanges.cut`.
        """
        self._left(job, place)
        self.attempts.cut(job, kind, ran)
        previous = job
        if job.state not in (JobState.MATCHED, JobState.TAKEN):
            event = self._event(kind, job, JobState.RESCHEDULED, job.epoch, reason)
            previous = job._replace(state=JobState.RESCHEDULED, last_event=event)
            kind, reason = "requeued", ""
        event = self._event(kind, previous, JobState.WAITING, job.epoch, reason, again=True)
        self._freed.append(
            jobs.FreedJob(JobState.WAITING, None, job.failures, job.own_failures, "", event, job.id)
        )
        self._returned(self._now(job, state=JobState.WAITING, last_event=event, pilot=None))

    def retry(self, job: JobRow, kind: str, reason: str, place: PilotRow | None) -> None:
        """Move to Rescheduled, until the retry delay of the policy is over."""
        self._left(job, place)
        later = self.now + self.pool.policy.jobs.retry_delay
        self._return(job, kind, JobState.RESCHEDULED, reason, later)

    def requeue(self, job: JobRow, kind: str = "requeued") -> None:
        """Rescheduled, Blocked or Held → Waiting."""
        self._returned(self._return(job, kind, JobState.WAITING))

    def hold_back(self, job: JobRow, reason: str) -> None:
        """Waiting, Blocked or Rescheduled → Held."""
        self._left(job, None)
        self.parent_changed(self._return(job, "held", JobState.HELD, reason))

    def block(self, job: JobRow, kind: str) -> JobRow:
        """Waiting, Rescheduled, Held or Skipped → Blocked."""
        self._left(job, None)
        return self._return(job, kind, JobState.BLOCKED)

    def _return(
        self, job: JobRow, kind: str, new: JobState, reason: str = "", not_before: float | None = None
    ) -> JobRow:
        """Move a job that no pilot holds to a state from which it can be offered again."""
        event = self._event(kind, job, new, job.epoch, reason)
        self._freed.append(
            jobs.FreedJob(new, not_before, job.failures, job.own_failures, reason, event, job.id)
        )
        return self._now(job, state=new, last_event=event, pilot=None)

    def parent_changed(self, job: JobRow, *, returned: bool = False) -> None:
        """Note that conditions on this job must be decided. One that has `returned` after its end may lack its mark."""
        if job.has_dependants or returned:
            self._parents.append(chains.ParentChange(job.id, job.submission, job.state))
            self.pool.jobs.dependants_due()

    def end(
        self,
        job: JobRow,
        kind: str,
        new: JobState,
        reason: str,
        place: PilotRow | None,
        *,
        exit_code: int | None = None,
        failure: str = "",
        wall: float = 0.0,
    ) -> None:
        """Move to a final state. `failure` as in the hand-over's retry rule; empty: the job did not fail.

        `wall`: seconds that its last attempt ran.
        """
        assert new in FINAL
        self._left(job, place)
        identity = self.pool.queues.identities.get(job.queue)
        of_request = identity is None or identity.job_type in REQUEST_TYPES
        # The roll-up has read the end of a job that had ended before.
        if of_request and job.state not in FINAL and self.of_request(job):
            site = place.site if place is not None else ""
            tries = max(1, job.failures + job.own_failures)
            of_element = (_decode(job.parameters or "[0]")[0], job.id, new, self.now)
            self._outcomes.append(
                job_outcomes.JobEnd(*of_element, exit_code, failure, reason, wall, tries, site)
            )
        event = self._event(kind, job, new, job.epoch, reason)
        self._ended.append(
            jobs.EndedJob(new, job.failures, job.own_failures, reason, exit_code, self.now, event, job.id)
        )
        self.parent_changed(self._now(job, state=new, last_event=event, pilot=None))

    def move(self, job: JobRow, kind: str, new: JobState, reason: str = "") -> JobRow:
        """A transition that changes only the state."""
        event = self._event(kind, job, new, job.epoch, reason)
        self._moved.append(jobs.StateChange(new, reason, event, job.id))
        return self._now(job, state=new, last_event=event)

    def wait_elsewhere(self, job: JobRow, queue: QueueId, user_priority: int, reason: str) -> None:
        """Let a waiting job wait in another queue, or with another UserPriority.

        Its last event changes, so a server that still has it in the old queue cannot offer it.
        """
        self._left(job, None)
        self.pool.peers.doubt((job.queue, queue))
        event = self._event("moved", job, JobState.RESCHEDULED, job.epoch, reason)
        between = job._replace(state=JobState.RESCHEDULED, last_event=event)
        event = self._event("requeued", between, JobState.WAITING, job.epoch, again=True)
        self._relocated.append(jobs.MovedJob(queue, user_priority, event, job.id))
        self._returned(self._now(job, queue=queue, user_priority=user_priority, last_event=event))

    def return_elsewhere(self, job: JobRow, queue: QueueId, user_priority: int) -> None:
        """Let a job that does not wait now return to this queue, if it returns."""
        if job.id in self.moved_since:
            self.write()
        self.moved_since.add(job.id)
        self._relocated.append(jobs.MovedJob(queue, user_priority, job.last_event, job.id))
        self._now(job, queue=queue, user_priority=user_priority)

    def count(self, job: JobRow) -> None:
        """Save the failure counters of a job that keeps its state."""
        self.moved_since.add(job.id)
        self._counted.append(jobs.FailureCounts(job.failures, job.own_failures, job.id))
        self._now(job)

    def finish_taken(self, job: JobRow, epoch: int, digest: str) -> JobRow:
        """Record the answered finish of this epoch; a repeated finish gets the same answer."""
        self._finishes.append(jobs.AcceptedFinish(epoch, digest, job.id))
        return self._now(job, finished_epoch=epoch, finished_digest=digest)

    # --- steps of a transition

    def _event(
        self, kind: str, job: JobRow, new: JobState, epoch: int, detail: str = "", *, again: bool = False
    ) -> int:
        """Log a transition. `again`: this is the second step of a transition."""
        JOB_STATES.check(job.state, new)
        if job.id in self.moved_since and not again:
            # Statements are grouped by kind: the second transition of a job must not be written before the first.
            self.write()
        self.moved_since.add(job.id)
        of_job = (job.id, job.submission, epoch, job.last_event)
        return self.events.add(kind, job.state, new, *of_job, detail, self.pilot)

    def of_request(self, job: JobRow) -> bool:
        """Whether the job works for a request, which decides about further tries."""
        return self.pool.jobs.submissions.get(self.tx, job.submission).row.request is not None

    def _now(self, job: JobRow, **changes: Any) -> JobRow:
        row = self.rows[job.id] = job._replace(**changes)
        return row

    def _left(self, job: JobRow, place: PilotRow | None) -> None:
        """Remove the job from its queue or from its pilot."""
        if job.state is JobState.WAITING:
            if self.pool.queues.is_counted(job.id):
                self.pool.queues.touch(self.tx, job.queue)
                self.pool.queues.index.remove_job(job.queue, job.user_priority, job.id)
        elif job.state in _WITH_PILOT and place is not None:
            if job.id in place.jobs:
                self.touch_pilot(place)
                place.jobs = [held for held in place.jobs if held != job.id]
            self.pool.offers.limits.left(self.tx, self.pool.queues.identity(self.tx, job.queue), place)

    def _returned(self, job: JobRow) -> None:
        if not self.pool.queues.is_counted(job.id):
            return
        self.pool.queues.touch(self.tx, job.queue)
        head = WaitingJob(job.id, job.submission, job.epoch, job.last_event, job.parameters)
        self.pool.queues.index.return_job(job.queue, job.user_priority, head)
