"""Finds the traces of jobs, elements and requests, and the ids of their spans."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field

from pilotage.core.jobs.json_format import description_from_json
from pilotage.core.jobs.trace import trace_of
from pilotage.core.requests.json_format import specification_from_text
from pilotage.core.requests.trace import trace_of_request
from pilotage.core.trace_context import VARIABLE, TraceContext
from pilotage.store.engine.connection import Connection
from pilotage.store.tables import listing, requests, traced_work
from pilotage.store.tables.listing import JobFacts
from pilotage.store.tables.requests import RequestRow
from pilotage.store.tables.traced_work import TracedElement
from pilotage.telemetry.tracer import Attribute

MOST_JOBS = 1000
"""Jobs of one submission that become spans: the first ones. A trace of more could not be shown."""
MOST_ELEMENTS, MOST_JOBS_OF_ELEMENT = 100, 100
"""Elements of one request, and jobs of one element, that become spans."""
KNOWN_REQUESTS = 1000
"""Requests whose first element is kept in memory."""
REASON_LENGTH = 200
"""Characters."""


@dataclass(frozen=True, slots=True)
class JobInTrace:
    """A job of a trace that is kept."""

    facts: JobFacts
    parent: TraceContext
    """The span around the job: its element, or the call that submitted it."""

    def life(self, number: int) -> TraceContext:
        """The span of the job. A job that has ended and is rescheduled has a further life."""
        words = (number,) if number else ()
        return self.parent.named_child("job", self.facts.id, *words)


@dataclass(frozen=True, slots=True)
class Traces:
    """Remembers facts of requests that do not change. Several threads may use it."""

    _first_elements: dict[int, int] = field(default_factory=dict)

    def of_jobs(self, connection: Connection, jobs: Sequence[int]) -> list[JobInTrace]:
        """The jobs that belong to a trace that is kept, and are not too many of their submission or request."""
        traced = []
        for facts in listing.facts_of_jobs(connection, jobs).values():
            # Most texts are not parsed: their jobs have no trace.
            if VARIABLE not in facts.description:
                continue
            parent = trace_of(description_from_json(json.loads(facts.description)))
            if parent is not None and parent.sampled:
                around = self._around(connection, facts, parent)
                traced += [] if around is None else [JobInTrace(facts, around)]
        return traced

    def _around(self, connection: Connection, facts: JobFacts, trace: TraceContext) -> TraceContext | None:
        if facts.request is None:
            return trace if facts.id - facts.first_job < MOST_JOBS else None
        [element_job] = json.loads(facts.parameters or "[0]")
        element = traced_work.element_of_job(connection, element_job, MOST_JOBS_OF_ELEMENT)
        return None if element is None else self._of_element(connection, element, trace)

    def of_elements(
        self, connection: Connection, trace: TraceContext, ids: Sequence[int]
    ) -> list[tuple[TracedElement, TraceContext]]:
        """The elements of one request that become spans, each with the context of its span."""
        pairs = (
            (element, self._of_element(connection, element, trace))
            for element in traced_work.elements(connection, ids)
        )
        return [(element, context) for element, context in pairs if context is not None]

    def _of_element(
        self, connection: Connection, element: TracedElement, trace: TraceContext
    ) -> TraceContext | None:
        first = self._first_elements.get(element.request_id)
        if first is None:
            if len(self._first_elements) >= KNOWN_REQUESTS:
                self._first_elements.clear()
            first = traced_work.first_element(connection, element.request_id)
            self._first_elements[element.request_id] = first
        if element.id - first >= MOST_ELEMENTS:
            return None
        return of_request(trace, element.request_id).named_child("element", element.id)


def of_request(trace: TraceContext, request: int) -> TraceContext:
    """The span of a request."""
    return trace.named_child("request", request)


def trace_of_row(connection: Connection, request: int) -> tuple[RequestRow, TraceContext] | None:
    """A request and the trace that it continues; None: it has none that is kept."""
    row = requests.by_id(connection, request)
    trace = None if row is None else trace_of_request(specification_from_text(row.specification))
    return None if row is None or trace is None or not trace.sampled else (row, trace)


def reason_of(text: str) -> dict[str, Attribute]:
    """The attribute of a span that tells why its work had no success."""
    return {"pilotage.reason": text[:REASON_LENGTH]} if text else {}
