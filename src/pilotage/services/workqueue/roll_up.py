"""The roll-up: ends of pool jobs become states of element jobs, of elements, of steps and of requests.

It uses the outcomes that were appended in the transactions of the ends, in slices, and deletes them in the same
transaction. So each end counts once, whichever server dies when.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence

from pilotage.core.jobs.states import JobState
from pilotage.core.plurals import plural
from pilotage.core.requests.retries import INPUT_FAILURE, FailedTry, RetryRules, after_failed_try
from pilotage.core.requests.states import RequestState
from pilotage.core.short_text import cut_middle
from pilotage.core.workqueue.roll_up import ENDED, ROLLED, next_states, state_of_element, state_of_job
from pilotage.core.workqueue.states import ELEMENT_JOB_STATES, ElementJobState, ElementState
from pilotage.services.catalogue.outputs import close_output
from pilotage.services.workqueue.moves import ElementMoves
from pilotage.services.workqueue.programs import ProgramCache, retry_rules
from pilotage.services.workqueue.state import WorkQueue
from pilotage.store.engine.connection import Connection
from pilotage.store.tables import (
    datasets,
    element_jobs,
    element_progress,
    job_outcomes,
    queued_requests,
    requests,
    resubmissions,
)
from pilotage.store.tables.element_jobs import ElementJobRow, RolledJob
from pilotage.store.tables.element_progress import ElementProgress, EndedElement, JobsEnded, StepProgress
from pilotage.store.tables.job_outcomes import Outcome
from pilotage.store.tables.requests import RequestRow, StepRow
from pilotage.store.writer.transaction import Transaction

J = ElementJobState

HasPlace = Callable[[Connection, ElementJobRow, str], bool]
"""(connection, element job, the sites that it avoids)"""

ACTOR = "server"


def roll_up(
    tx: Transaction,
    programs: ProgramCache,
    defaults: RetryRules,
    now: float,
    outcomes: Sequence[Outcome],
    has_place: HasPlace,
) -> set[int]:
    """Use ends of pool jobs. Returns the requests with an element that has ended: see `advance`.

    `defaults`: the retry rules of the policy. `has_place`: see `places_of`. An end that was used before changes
    nothing.
    """
    connection = tx.connection
    rows = element_jobs.by_ids(connection, sorted({outcome.element_job for outcome in outcomes}))
    rolled: dict[int, RolledJob] = {}
    for outcome in outcomes:
        row = rows.get(outcome.element_job)
        if row is not None and row.state is J.RELEASED and row.job == outcome.job and row.id not in rolled:
            rolled[row.id] = _rolled(connection, programs, defaults, row, outcome, has_place)
    element_jobs.save_rolled(connection, list(rolled.values()))
    elements = _add_progress(connection, [(rows[id_], job.state) for id_, job in rolled.items()])
    ended = end_elements(connection, elements, now)
    job_outcomes.delete(connection, [outcome.id for outcome in outcomes])
    return ended


def places_of(work_queue: WorkQueue, now: float) -> HasPlace:
    """Whether a site may run an element job, besides the sites that it avoids."""

    def has_place(connection: Connection, row: ElementJobRow, avoided_sites: str) -> bool:
        request = queued_requests.by_ids(connection, [row.request]).get(row.request)
        steps = queued_requests.steps_of(connection, [row.request])
        step = next((step for step in steps if step.position == row.step), None)
        if request is None or step is None:
            return False
        return bool(
            work_queue.eligible(connection, request, step, row.location_set, now)
            - element_jobs.avoided(avoided_sites)
        )

    return has_place


def _rolled(
    connection: Connection,
    programs: ProgramCache,
    defaults: RetryRules,
    row: ElementJobRow,
    outcome: Outcome,
    has_place: HasPlace,
) -> RolledJob:
    """The element job after this end of its pool job."""
    retries, not_before, message = row.retries, None, outcome.message
    avoided_sites = row.avoided_sites
    exit_code, failure = outcome.exit_code, outcome.failure
    state = state_of_job(JobState(outcome.state), canceling=row.canceling, failed_before=row.retries > 0)
    if state is J.EXHAUSTED and row.canceling and outcome.state != JobState.FAILED:
        exit_code, failure, message = row.exit_code, row.failure, row.message
    if state is None:
        program = programs.get(connection, row.request, row.step)
        if program is None:
            state = J.EXHAUSTED
        else:
            # The tries in the pool count too: there is one count of the tries of a piece.
            before = row.retries + outcome.tries - 1
            failed = FailedTry(
                *(program.description.job_type, before, outcome.failure, outcome.exit_code, outcome.wall)
            )
            verdict = after_failed_try(failed, retry_rules(program.retry, defaults))
            if outcome.failure == INPUT_FAILURE and outcome.site and row.files:
                avoided_sites = json.dumps(sorted({*element_jobs.avoided(avoided_sites), outcome.site}))
            if verdict.pause is None:
                state, retries, message = J.EXHAUSTED, before, f"{message}; {verdict.why}"
            elif avoided_sites != row.avoided_sites and not has_place(connection, row, avoided_sites):
                state, retries = J.EXHAUSTED, before
                times = "once" if before == 0 else f"{before + 1} times"
                message = f"{message}; it failed {times}, and no other site may read its input"
            else:
                state, retries, not_before = J.COOLOFF, before + 1, outcome.at + verdict.pause
    ELEMENT_JOB_STATES.check(row.state, state)
    text = cut_middle(message, element_jobs.MESSAGE_LENGTH)
    return RolledJob(
        *(state, retries, not_before, outcome.at, exit_code, failure, text, avoided_sites),
        row.id,
    )


def _add_progress(connection: Connection, jobs: Iterable[tuple[ElementJobRow, ElementJobState]]) -> list[int]:
    """Count the ended jobs of each element; returns the elements with such jobs."""
    counts: dict[int, dict[ElementJobState, int]] = {}
    events: dict[int, int] = {}
    for row, state in jobs:
        if state in (J.DONE, J.EXHAUSTED, J.CANCELED):
            of_element = counts.setdefault(row.element, dict.fromkeys(J, 0))
            of_element[state] += 1
            if state is J.DONE:
                events[row.element] = events.get(row.element, 0) + row.events
    element_progress.add(
        connection,
        [
            JobsEnded(count[J.DONE], count[J.EXHAUSTED], count[J.CANCELED], events.get(element, 0), element)
            for element, count in sorted(counts.items())
        ],
    )
    return sorted(counts)


def end_elements(connection: Connection, elements: Sequence[int], now: float) -> set[int]:
    """End the elements among these whose jobs have all ended. Returns their requests, to be advanced."""
    if not elements:
        return set()
    ended: list[EndedElement] = []
    moves, touched = ElementMoves(now, ACTOR), set()
    for element in element_progress.by_ids(connection, elements):
        state = state_of_element(
            element.state,
            unfinished=element.unfinished,
            done=element.done,
            failed=element.failed,
            canceled=element.canceled,
        )
        if state is not None:
            reason = _reason(element)
            moves.record_of(element.request, element.id, element.state, state, reason)
            ended.append(EndedElement(state, now, reason, element.id))
            touched.add(element.request)
    element_progress.save_ended(connection, ended)
    moves.save(connection)
    return touched


def _reason(element: ElementProgress) -> str:
    return f"{element.failed} of {plural(element.jobs, 'job')} failed for good" if element.failed else ""


def advance(tx: Transaction, request: int, now: float) -> bool:
    """End the steps of a request that are over, and move the request as its elements are. Returns whether it moved.

    The output data set of a step is closed with its end, so that the next step sees the last block.
    """
    connection = tx.connection
    row = requests.for_change(connection, request)
    if row is None or row.state not in ROLLED:
        return False
    steps = requests.steps_of(connection, request)
    states: set[ElementState] = set()
    running = {step.position: step for step in steps if not step.ended}
    moved = False
    for step in steps:
        of_step = element_progress.of_step(connection, request, step.position)
        states |= of_step.states
        if step.position in running and _end_step(tx, row, step, of_step, now, running.values()):
            del running[step.position]
            moved = True
    closed = all(step.closed for step in steps) or not running
    following = next_states(
        row.state,
        states,
        closed=closed,
        ended=bool(steps) and not running,
        has_jobs=element_jobs.has_any(connection, request),
    )
    for state in following:
        row = requests.move(connection, row, state, actor=ACTOR, now=now)
        moved = True
    return moved


def _end_step(
    tx: Transaction,
    row: RequestRow,
    step: StepRow,
    progress: StepProgress,
    now: float,
    running: Iterable[StepRow],
) -> bool:
    """End a step that gets no further elements, and all of whose elements have ended. Returns whether it has ended.

    The last one of the `running` steps that write a data set, of outputs or of logs, closes it. Resubmissions of one
    chain may write the same data set: then the last one of their steps closes it.
    """
    if not step.closed and row.state is not RequestState.ABORTED:
        return False
    if not progress.states <= ENDED or progress.has_unfinished_jobs:
        return False
    others = [other.written for other in running if other.position != step.position]
    for dataset in sorted(step.written.difference(*others)):
        if not _has_other_writer(tx, row, dataset) and not close_output(tx, dataset, now):
            return False
    element_progress.end_step(tx.connection, step.request, step.position)
    requests.record(tx.connection, row, "step-ended", actor=ACTOR, now=now, detail=step.name)
    return True


def _has_other_writer(tx: Transaction, row: RequestRow, dataset: int) -> bool:
    """Whether another request of the chain writes the data set. The lock orders steps that end at two servers."""
    if datasets.lock(tx.connection, dataset) is None:
        return False
    root = row.root or row.id
    return resubmissions.has_other_writer(tx.connection, row.id, root, dataset, ROLLED)
