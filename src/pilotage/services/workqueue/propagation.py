"""Carries out changes of requests at elements and jobs, in slices: abort, force-complete, priority and lists of sites.

The row of the request changes first, and stops pulls and releases at once. Its elements and jobs follow here. Elements
that nobody has are cancelled. One that an agent splits, or has split, waits for the word of the agent and its jobs.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from pilotage.core.ids import JobId
from pilotage.core.jobs.states import JobState
from pilotage.core.requests.states import RequestState
from pilotage.core.workqueue.release import usable_sites
from pilotage.core.workqueue.roll_up import ENDED, GO_ON_WHEN_FORCED, is_working, state_when_canceled
from pilotage.core.workqueue.states import ELEMENT_STATES, ElementJobState, ElementState
from pilotage.services.jobs.actions import act
from pilotage.services.jobs.relocation import Place, relocate
from pilotage.services.workqueue.roll_up import end_elements
from pilotage.services.workqueue.state import WorkQueue
from pilotage.store.tables import cancelling, element_jobs, element_progress, jobs, queued_requests, requests
from pilotage.store.tables.cancelling import CanceledJob, ExhaustedJob, JobSite, WaitingElementJob
from pilotage.store.tables.element_progress import EndedElement, JobsEnded
from pilotage.store.tables.requests import RequestRow
from pilotage.store.writer.transaction import Transaction

E = ElementState
ACTOR = "server"
REJECTED = (RequestState.REJECTED, RequestState.REJECTED_ARCHIVED)
"""States of a request whose elements, if it has any that have not ended, are cancelled."""


@dataclass(slots=True)
class Propagation:
    """The change of one request, on its way. Only requests of the writer use it."""

    work_queue: WorkQueue
    request: int
    after: int = 0
    """The last element or job of the present step that was looked at."""
    _steps: Sequence[_PropagationStep] | None = None
    _place: int = 0
    _version: int = 0

    def run(self, tx: Transaction, now: float, most: int) -> bool:
        """Carry out the change for at most `most` elements or jobs. Returns whether this cycle is over."""
        row = requests.by_id(tx.connection, self.request)
        if row is None:
            return True
        before = self._steps, self._place, self.after, self._version
        tx.on_rollback(lambda: self._reset(*before))
        if self._steps is None or row.version != self._version:
            self._reset(_steps(tx, row), 0, 0, row.version)
        assert self._steps is not None
        if self._place < len(self._steps):
            last = self._steps[self._place].slice(self, tx, row, now, most)
            self._place, self.after = (self._place + 1, 0) if last is None else (self._place, last)
        if self._place < len(self._steps):
            return False
        return self._settle(tx, row)

    def _reset(self, steps: Sequence[_PropagationStep] | None, place: int, after: int, version: int) -> None:
        self._steps, self._place, self.after, self._version = steps, place, after, version

    def _settle(self, tx: Transaction, row: RequestRow) -> bool:
        """An ended request has nothing to carry out; one that is being ended is looked at until its elements end.

        False: the request has changed again, and that change is carried out at once.
        """
        if row.state in (RequestState.ABORTED, RequestState.FORCE_COMPLETE):
            for step in _ended_early(tx, row):
                progress = element_progress.of_step(tx.connection, row.id, step)
                if not progress.states <= ENDED or progress.has_unfinished_jobs:
                    return True
        return cancelling.settle(tx.connection, row.id, row.version)


class _PropagationStep:
    """One kind of work, in slices."""

    def slice(self, run: Propagation, tx: Transaction, row: RequestRow, now: float, most: int) -> int | None:
        """Handle the next elements or jobs after `run.after`; returns the last one, or None after the last slice."""
        raise NotImplementedError


def _ended_early(tx: Transaction, row: RequestRow) -> list[int]:
    """The steps that end with the request. A forced request still merges the outputs that it has."""
    return [
        step.position
        for step in requests.steps_of(tx.connection, row.id)
        if row.state is not RequestState.FORCE_COMPLETE or step.type not in GO_ON_WHEN_FORCED
    ]


def _steps(tx: Transaction, row: RequestRow) -> Sequence[_PropagationStep]:
    if row.state in (RequestState.ABORTED, RequestState.FORCE_COMPLETE, *REJECTED):
        early = _ended_early(tx, row)
        cancelling.close_steps(tx.connection, row.id, early)
        elements: list[_PropagationStep] = []
        for step in early:
            elements += [
                _EndElements(step, E.AVAILABLE, E.CANCELED),
                _EndElements(step, E.NEGOTIATING, E.CANCELED),
            ]
            elements += [
                _EndElements(step, E.ACQUIRED, E.CANCEL_REQUESTED),
                _EndElements(step, E.RUNNING, E.CANCEL_REQUESTED),
            ]
        return [
            # Jobs on nodes first: each second of theirs is lost, while elements and made jobs only wait.
            _KillJobs(early),
            *elements,
            _CancelJobs(early, "made"),
            _CancelJobs(early, "cooloff"),
            # Jobs that a release under way has put into the pool meanwhile.
            _KillJobs(early),
            *(_FinishCancel(step) for step in early),
            *_relocations(tx, row),
        ]
    return _relocations(tx, row)


def _relocations(tx: Transaction, row: RequestRow) -> list[_PropagationStep]:
    steps = requests.steps_of(tx.connection, row.id)
    positions = [step.position for step in steps if is_working(row.state, step.type)]
    return [_Relocate(positions)] if positions else []


@dataclass(frozen=True, slots=True)
class _EndElements(_PropagationStep):
    """Moves the elements of a step from one state to another."""

    position: int
    old: ElementState
    new: ElementState

    def slice(self, run: Propagation, tx: Transaction, row: RequestRow, now: float, most: int) -> int | None:
        ELEMENT_STATES.check(self.old, self.new)
        ids = cancelling.elements_in(tx.connection, row.id, self.position, self.old, run.after, most)
        if ids:
            reason = _reason(row)
            rows = [EndedElement(self.new, now, reason, element) for element in ids]
            element_progress.save_ended(tx.connection, rows)
            detail = json.dumps({"elements": ids, "reason": reason}, separators=(",", ":"))
            requests.record(
                tx.connection,
                row,
                "elements",
                actor=ACTOR,
                now=now,
                old=self.old,
                new=self.new,
                detail=detail,
            )
        return ids[-1] if len(ids) == most else None


@dataclass(frozen=True, slots=True)
class _CancelJobs(_PropagationStep):
    """Ends element jobs that are not in the pool."""

    steps: Sequence[int]
    state: str

    def slice(self, run: Propagation, tx: Transaction, row: RequestRow, now: float, most: int) -> int | None:
        page = cancelling.jobs_in(tx.connection, row.id, self.steps, self.state, run.after, most)
        reason = _reason(row)
        failed = [job for job in page if _ends_failed(job)]
        canceled = [job for job in page if not _ends_failed(job)]
        cancelling.save_canceled(tx.connection, [CanceledJob(now, reason, job.id) for job in canceled])
        cancelling.save_exhausted(tx.connection, [ExhaustedJob(now, job.id) for job in failed])
        counts = Counter((job.element, _ends_failed(job)) for job in page)
        elements = sorted({job.element for job in page})
        ended = [JobsEnded(0, counts[id_, True], counts[id_, False], 0, id_) for id_ in elements]
        element_progress.add(tx.connection, ended)
        return page[-1].id if len(page) == most else None


def _ends_failed(job: WaitingElementJob) -> bool:
    return state_when_canceled(failed_before=job.retries > 0) is ElementJobState.EXHAUSTED


@dataclass(frozen=True, slots=True)
class _KillJobs(_PropagationStep):
    """Kills pool jobs. The roll-up ends their element jobs."""

    steps: Sequence[int]

    def slice(self, run: Propagation, tx: Transaction, row: RequestRow, now: float, most: int) -> int | None:
        page = cancelling.jobs_in(tx.connection, row.id, self.steps, "released", run.after, most)
        ids = [job.job for job in page if job.job is not None]
        if ids:
            act(
                run.work_queue.pool, tx, "kill", ids, actor=ACTOR, reason=_reason(row), now=now, dry_run=False
            )
        return page[-1].id if len(page) == most else None


@dataclass(frozen=True, slots=True)
class _FinishCancel(_PropagationStep):
    """Ends elements after their agents have stopped and their jobs have ended."""

    position: int

    def slice(self, run: Propagation, tx: Transaction, row: RequestRow, now: float, most: int) -> int | None:
        ids = cancelling.elements_in(
            tx.connection, row.id, self.position, E.CANCEL_REQUESTED, run.after, most
        )
        end_elements(tx.connection, ids, now)
        return ids[-1] if len(ids) == most else None


@dataclass(frozen=True, slots=True)
class _Relocate(_PropagationStep):
    """Lets pool jobs wait for the sites, and with the priority, that the request has now."""

    steps: Sequence[int]

    def slice(self, run: Propagation, tx: Transaction, row: RequestRow, now: float, most: int) -> int | None:
        work_queue, pool = run.work_queue, run.work_queue.pool
        page = cancelling.jobs_in(tx.connection, row.id, self.steps, "released", run.after, most)
        user_priority = pool.policy.requests.user_priority(row.priority)
        for sites, group in _by_sites(work_queue, tx, row.id, page, now).items():
            ids = [JobId(job.job) for job in group if job.job is not None]
            if not sites:
                _take_back(work_queue, tx, group, now)
                continue
            place = Place(sites, user_priority)
            relocate(pool, tx, ids, place, actor=ACTOR, reason="its request has changed", now=now)
            moved = [job for job in group if job.site not in sites]
            names = sorted(sites)
            cancelling.save_sites(
                tx.connection, [JobSite(names[job.id % len(names)], job.id) for job in moved]
            )
        return page[-1].id if len(page) == most else None


def _by_sites(
    work_queue: WorkQueue, tx: Transaction, request: int, page: Sequence[WaitingElementJob], now: float
) -> dict[frozenset[str], list[WaitingElementJob]]:
    """The jobs by the sites where they may run now."""
    connection = tx.connection
    [row] = queued_requests.by_ids(connection, [request]).values()
    steps = {step.position: step for step in queued_requests.steps_of(connection, [request])}
    uses = work_queue.site_states()
    groups: dict[frozenset[str], list[WaitingElementJob]] = {}
    for job in page:
        eligible = work_queue.eligible(connection, row, steps[job.step], job.location_set, now)
        sites = eligible - element_jobs.avoided(job.avoided_sites)
        groups.setdefault(usable_sites(sites, uses), []).append(job)
    return groups


def _take_back(
    work_queue: WorkQueue, tx: Transaction, group: Sequence[WaitingElementJob], now: float
) -> None:
    """Kill the waiting jobs that no site may run any more. Their element jobs are made, until a site may run them."""
    rows = jobs.by_ids(tx.connection, [job.job for job in group if job.job is not None])
    waiting = {id_ for id_, job in rows.items() if job.state in (JobState.WAITING, JobState.RESCHEDULED)}
    if waiting:
        reason = "no site may run it since its request has changed"
        act(work_queue.pool, tx, "kill", sorted(waiting), actor=ACTOR, reason=reason, now=now, dry_run=False)
        cancelling.take_back(tx.connection, [(job.id,) for job in group if job.job in waiting])


def _reason(row: RequestRow) -> str:
    if row.state in REJECTED:
        return f"request {row.id} was rejected"
    verb = "aborted" if row.state is RequestState.ABORTED else "completed by force"
    return f"request {row.id} was {verb}"
