"""Planned elements as rows of the work queue."""

from __future__ import annotations

import json

from pilotage.core.requests.plan import PlannedStep
from pilotage.core.requests.start_policy import ANY_LOCATION, JobCounter, PlannedElement
from pilotage.core.splitting.algorithm import Algorithm, Amount
from pilotage.core.splitting.parser import stored_splitting
from pilotage.core.workqueue.identity import element_digest
from pilotage.core.workqueue.states import ElementState
from pilotage.store.engine.connection import MAX_INTEGER, Connection
from pilotage.store.tables import location_sets
from pilotage.store.tables.elements import NewElement


def algorithm_of(planned: PlannedStep) -> Algorithm:
    return stored_splitting(planned.splitting.algorithm, dict(planned.splitting.parameters))


def job_count_of(planned: PlannedStep) -> JobCounter:
    """The number of jobs that the step's algorithm will make, about."""
    algorithm = algorithm_of(planned)

    def count(*, files: int, events: int, lumis: int, size: int) -> int:
        return algorithm.estimate_jobs(Amount(files, events, size, lumis))

    return count


def new_element(
    connection: Connection, request: int, step: int, element: PlannedElement, now: float
) -> NewElement:
    """The row of an element that no agent has."""
    mask = element.mask
    location_set = element.location_set
    if location_set == ANY_LOCATION:
        location_set = location_sets.anywhere(connection)
    identity: dict[str, object] = {} if mask is None else mask.to_json()
    return NewElement(
        request_id=request,
        step=step,
        digest=element_digest(request, step, element.names, identity),
        state=ElementState.AVAILABLE,
        jobs=min(element.jobs, MAX_INTEGER),
        events=min(element.events, MAX_INTEGER),
        files=element.files,
        size=min(element.size, MAX_INTEGER),
        blocks=json.dumps(element.blocks),
        mask="" if mask is None else mask.text,
        location_set=location_set,
        created=now,
        changed=now,
    )
