"""Spans of requests and of their elements, from the events of the requests."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from pilotage.core.requests.states import ENDED, SUCCESSFUL
from pilotage.core.workqueue.states import ElementState
from pilotage.server.spans.traces import Traces, of_request, reason_of, trace_of_row
from pilotage.store.engine.connection import Connection
from pilotage.store.tables import feed, traced_work
from pilotage.store.tables.feed import LogRow
from pilotage.telemetry.tracer import Attribute, Span

_ENDS_OF_ELEMENTS = frozenset({ElementState.DONE, ElementState.FAILED, ElementState.CANCELED})


def request_spans(connection: Connection, traces: Traces, row: LogRow) -> Iterator[Span]:
    """The spans that end with an event of a request: its own, or the spans of its elements."""
    ends = row.kind == "state" and row.new in ENDED and row.old not in ENDED
    elements = row.kind == "elements" and row.new in _ENDS_OF_ELEMENTS
    if not ends and not elements:
        return
    [(number, _)] = feed.entries_of(row)
    traced = trace_of_row(connection, number)
    if traced is None:
        return
    request, trace = traced
    around = of_request(trace, number)
    facts: dict[str, Attribute] = {"pilotage.request": number, "pilotage.state": row.new}
    if ends:
        error = "" if row.new in SUCCESSFUL else row.new
        # An abort has two moves, and the first one has the reason.
        reason = reason_of(row.detail or traced_work.last_reason(connection, number)) if error else {}
        yield Span(
            "request", around, trace.span, request.created, row.at, attributes=facts | reason, error=error
        )
        return
    detail = msgspec.json.decode(row.detail)
    error = "" if row.new == ElementState.DONE else row.new
    for element, context in traces.of_elements(connection, trace, detail["elements"]):
        span = Span("element", context, around.span, element.created, row.at, error=error)
        span.attributes |= facts | reason_of(detail.get("reason", ""))
        span.attributes |= {"pilotage.element": element.id, "pilotage.step": element.step}
        yield span
