"""The present span, and the record of spans that end."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from pilotage.core.secret_source import SecretSource
from pilotage.core.trace_context import HEADER, VARIABLE, TraceContext, read_traceparent

Attribute = str | int | float | bool


@dataclass(slots=True)
class Span:
    """One piece of work. Attributes never hold arguments, environments, addresses with queries, or tokens."""

    name: str
    context: TraceContext
    parent: str
    """The id of the span around it; empty: it begins the trace."""
    begin: float
    end: float = 0.0
    kind: str = "internal"
    """internal, client or server."""
    attributes: dict[str, Attribute] = field(default_factory=dict)
    error: str = ""
    """The class of the error by which it failed."""


class SpanSink(Protocol):
    """Where ended spans go. It never waits."""

    def put(self, span: Span) -> None: ...


class _PresentSpan(NamedTuple):
    tracer: Tracer
    context: TraceContext


_present: ContextVar[_PresentSpan | None] = ContextVar("present span", default=None)


class Tracer:
    """Makes spans, and hands the spans of sampled traces to the sink."""

    def __init__(self, sink: SpanSink, clock: Callable[[], float], ids: SecretSource) -> None:
        self.sink = sink
        self.clock = clock
        self.ids = ids

    @contextmanager
    def span(
        self, name: str, parent: TraceContext | None, *, kind: str = "internal", **attributes: Attribute
    ) -> Iterator[Span]:
        """A span around the work inside, which is the present one meanwhile. Without a parent it begins a trace."""
        new = self.ids.token_hex(8)
        context = parent.child(new) if parent else TraceContext(self.ids.token_hex(16), new)
        span = Span(
            name, context, parent.span if parent else "", self.clock(), kind=kind, attributes=attributes
        )
        before = _present.set(_PresentSpan(self, context))
        try:
            yield span
        except BaseException as error:
            span.error = type(error).__name__
            raise
        finally:
            _present.reset(before)
            span.end = max(span.begin, self.clock())
            self.record(span)

    def record(self, span: Span) -> None:
        """Hand on a span that has ended, if its trace is kept."""
        if span.context.sampled:
            self.sink.put(span)


@contextmanager
def child_span(name: str) -> Iterator[None]:
    """A span within the present one; nothing if there is none."""
    present = _present.get()
    if present is None:
        yield
        return
    with present.tracer.span(name, present.context):
        yield


def present_context() -> TraceContext | None:
    """The present span of this task or thread."""
    present = _present.get()
    return None if present is None else present.context


def outgoing_headers(environment: Mapping[str, str]) -> dict[str, str]:
    """The header by which a request continues a trace; {} if there is none.

    It is that of the present span, of a program that uses OpenTelemetry, or of the variable TRACEPARENT.
    """
    context = present_context() or _of_program() or read_traceparent(environment.get(VARIABLE, ""))
    return {} if context is None else {HEADER: context.header}


def _of_program() -> TraceContext | None:
    """The present span of OpenTelemetry's own interface, if this program has imported it."""
    if "opentelemetry.trace" not in sys.modules:
        return None
    from opentelemetry import trace

    own = trace.get_current_span().get_span_context()
    if not own.is_valid:
        return None
    return TraceContext(
        trace.format_trace_id(own.trace_id), trace.format_span_id(own.span_id), own.trace_flags.sampled
    )
