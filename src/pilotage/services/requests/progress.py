"""Reads the progress of requests: the counts of a list, and the funnel of one request."""

from __future__ import annotations

import json
from collections.abc import Sequence

from pilotage.core.errors import InvalidInput, NotFound
from pilotage.core.jobs.states import RUNS
from pilotage.core.requests.json_format import stored_steps
from pilotage.core.requests.progress import RATE_WINDOW, estimated_end
from pilotage.core.requests.states import ENDED
from pilotage.core.workqueue.roll_up import ENDED as ENDED_ELEMENTS
from pilotage.core.workqueue.roll_up import PartProgress, progress_of_whole
from pilotage.core.workqueue.states import ElementJobState, ElementState
from pilotage.services.workqueue.resubmission import failed_parts
from pilotage.store.engine.connection import Connection
from pilotage.store.tables import (
    datasets,
    element_listing,
    request_progress,
    request_waits,
    requests,
    resubmissions,
)
from pilotage.store.tables.request_progress import ElementCount, JobCount, PoolCount
from pilotage.store.tables.requests import RequestRow, StepRow
from pilotage.wire.requests import (
    RequestDetail,
    RequestElement,
    RequestError,
    RequestSite,
    RequestStep,
    RequestSummary,
)
from pilotage.wire.resubmissions import Resubmissions, ResubmissionState

ERRORS_SHOWN = 20
STDERR_SHOWN = 1000
"""Characters of the example's standard error."""

_UNSPLIT = (ElementState.AVAILABLE, ElementState.NEGOTIATING, ElementState.ACQUIRED)
_RUNNING = frozenset(str(state) for state in RUNS)


def summaries(connection: Connection, rows: Sequence[RequestRow]) -> list[RequestSummary]:
    """The rows with the counts of their elements and jobs."""
    known = {row.id: summary_of(row) for row in rows}
    ids = list(known)
    for request, state, elements, jobs in (
        request_progress.elements_by_request(connection, ids) if ids else ()
    ):
        _add_elements(known[request], state, elements, jobs)
    for request, state, count in request_progress.jobs_by_request(connection, ids) if ids else ():
        _add_jobs(known[request], state, count)
    return list(known.values())


def _add_jobs(summary: RequestSummary, state: str, count: int) -> None:
    summary.done_jobs += count if state == ElementJobState.DONE else 0
    summary.failed_jobs += count if state == ElementJobState.EXHAUSTED else 0


def _add_elements(summary: RequestSummary, state: str, elements: int, jobs: int) -> None:
    summary.elements += elements
    summary.jobs += jobs
    summary.ended_elements += elements if state in ENDED_ELEMENTS else 0
    summary.failed_elements += elements if state == ElementState.FAILED else 0
    summary.canceled_elements += elements if state == ElementState.CANCELED else 0


def summary_of(row: RequestRow) -> RequestSummary:
    """The facts of the row alone."""
    return RequestSummary(
        *(row.id, row.name, row.owner, row.group, row.priority, row.team, row.campaign, row.state),
        *(row.reason, row.created, row.changed),
        paused=row.paused,
    )


def detail(connection: Connection, row: RequestRow, now: float) -> RequestDetail:
    """The funnel of one request: elements, jobs, sites and errors."""
    summary = summary_of(row)
    elements = request_progress.elements_of(connection, row.id)
    for part in elements:
        _add_elements(summary, part.state, part.number, part.jobs)
    jobs = request_progress.jobs_of(connection, row.id)
    for count in jobs:
        _add_jobs(summary, count.state, count.number)
    pool = request_progress.pool_jobs_of(connection, row.id)
    steps = _steps(connection, requests.steps_of(connection, row.id), elements, jobs, pool)
    for planned in stored_steps(row.specification, row.id):
        if planned.events:
            steps[planned.position].events = planned.events
    recent = request_progress.done_since(connection, row.id, now - RATE_WINDOW)
    ended_jobs = sum(count.number for count in jobs if count.state in ("done", "exhausted", "canceled"))
    left = 0 if row.state in ENDED else summary.jobs - ended_jobs
    return RequestDetail(
        request=summary,
        sites=list(row.sites),
        banned_sites=list(row.banned_sites),
        trust_input=row.trust_input,
        trust_pileup=row.trust_pileup,
        open_until=row.open_until,
        origin=row.origin,
        propagating=row.propagating,
        steps=steps,
        places=_sites(jobs, pool),
        errors=_errors(connection, row.id, {step.position: step.name for step in steps}),
        estimated_end=estimated_end(
            now, row.created, left, recent, request_waits.last_retry(connection, row.id)
        ),
        resubmitted=_resubmitted(connection, row),
    )


def _resubmitted(connection: Connection, row: RequestRow) -> Resubmissions | None:
    """Where the failed parts of an ended request are made again."""
    chain = resubmissions.of_chain(connection, row.root or row.id) if row.state in ENDED else []
    if all(other.id <= row.id for other in chain):
        return None
    parts = failed_parts(connection, row, chain)
    states = {other.id: other.state for other in chain}
    return Resubmissions(
        parts.failed,
        parts.failed - parts.taken,
        [
            ResubmissionState(number, states[number], count)
            for number, count in sorted(parts.left_out.items())
        ],
    )


def _steps(
    connection: Connection,
    rows: Sequence[StepRow],
    elements: Sequence[ElementCount],
    jobs: Sequence[JobCount],
    pool: Sequence[PoolCount],
) -> list[RequestStep]:
    wanted = {id_ for row in rows for id_ in (row.input_dataset, *row.written) if id_ is not None}
    names = {id_: dataset.name for id_, dataset in datasets.by_ids(connection, sorted(wanted)).items()}
    steps = {row.position: _step(row, names) for row in rows}
    for part in elements:
        step = steps[part.step]
        step.elements[part.state] = step.elements.get(part.state, 0) + part.number
        step.events += part.events
        step.files += part.files
        step.estimated_jobs += part.jobs if part.state in _UNSPLIT else 0
    for position, step in steps.items():
        whole = progress_of_whole(
            [
                PartProgress(ElementState(part.state), part.complete, part.success, part.number)
                for part in elements
                if part.step == position
            ],
            ElementState.AVAILABLE,
        )
        step.complete, step.success = whole.complete, whole.success
    for count in jobs:
        step = steps[count.step]
        if count.state != ElementJobState.RELEASED:
            step.jobs[count.state] = step.jobs.get(count.state, 0) + count.number
        if count.state == ElementJobState.DONE:
            step.done_events += count.events
            step.done_files += count.files
    for waiting in pool:
        step = steps[waiting.step]
        step.pool[waiting.state] = step.pool.get(waiting.state, 0) + waiting.number
    return list(steps.values())


def _step(row: StepRow, names: dict[int, str]) -> RequestStep:
    return RequestStep(
        position=row.position,
        name=row.name,
        type=row.type,
        start_policy=row.start_policy,
        algorithm=json.loads(row.splitting)["algorithm"],
        input="" if row.input_dataset is None else names.get(row.input_dataset, ""),
        output="" if row.output_dataset is None else names.get(row.output_dataset, ""),
        closed=row.closed,
        ended=row.ended,
        logs="" if row.log_dataset is None else names.get(row.log_dataset, ""),
    )


def _sites(jobs: Sequence[JobCount], pool: Sequence[PoolCount]) -> list[RequestSite]:
    """The jobs of each site. Made and waiting jobs are pending; jobs that a pilot has are running."""
    sites: dict[str, RequestSite] = {}
    for part in jobs:
        site = sites.setdefault(part.site, RequestSite(part.site))
        if part.state == ElementJobState.MADE:
            site.pending += part.number
        elif part.state == ElementJobState.DONE:
            site.done += part.number
        elif part.state in (ElementJobState.EXHAUSTED, ElementJobState.COOLOFF):
            site.failed += part.number
    for waiting in pool:
        site = sites.setdefault(waiting.site, RequestSite(waiting.site))
        if waiting.state in _RUNNING:
            site.running += waiting.number
        else:
            site.pending += waiting.number
    shown = [site for site in sites.values() if site.pending or site.running or site.done or site.failed]
    return sorted(shown, key=lambda site: site.site)


def _errors(connection: Connection, request: int, names: dict[int, str]) -> list[RequestError]:
    """Each kind of failure with one real job or element as an example; elements first, since they have no jobs."""
    counts = request_progress.errors_of(connection, request, ERRORS_SHOWN)
    examples = request_progress.messages_of(connection, [count.example for count in counts]) if counts else {}
    errors = [
        RequestError(
            step=names.get(of_elements.step, ""),
            exit_code=None,
            failure="not split",
            count=of_elements.number,
            exhausted=of_elements.number,
            job=None,
            message=of_elements.reason,
            element=of_elements.example,
        )
        for of_elements in element_listing.failed(connection, request, ERRORS_SHOWN)
    ]
    for count in counts:
        job, message = examples.get(count.example, (None, ""))
        stderr = b"" if job is None else request_progress.last_stderr(connection, job)
        errors.append(
            RequestError(
                step=names.get(count.step, ""),
                exit_code=count.exit_code,
                failure=count.failure,
                count=count.number,
                exhausted=count.exhausted,
                job=job,
                message=message,
                stderr=stderr[-STDERR_SHOWN:].decode("utf-8", "replace"),
            )
        )
    return errors


def elements(
    connection: Connection,
    row: RequestRow,
    *,
    states: Sequence[str],
    step: str,
    unchanged_since: float,
    after: int,
    most: int,
) -> list[RequestElement]:
    """A page of the elements of a request, by id.

    Raises InvalidInput for an unknown state, NotFound for an unknown step. `unchanged_since`: only elements whose state
    has not changed after it.
    """
    for state in states:
        if state not in set(ElementState):
            raise InvalidInput(
                f"{state!r} is no state of elements",
                hint=f"states: {', '.join(ElementState)}",
                field="states",
            )
    names = {planned.position: planned.name for planned in requests.steps_of(connection, row.id)}
    positions = [position for position, name in names.items() if step in ("", name)]
    if step and not positions:
        raise NotFound(f"request {row.id} has no step {step}", hint=f"steps: {', '.join(names.values())}")
    listed = element_listing.page(
        connection,
        row.id,
        positions,
        states or list(ElementState),
        unchanged_since=unchanged_since,
        after=after,
        most=most,
    )
    return [RequestElement(**element._asdict() | {"step": names[element.step]}) for element in listed]
