"""The trace that jobs continue: the variable TRACEPARENT of their environment."""

from __future__ import annotations

from dataclasses import replace

from pilotage.core.jobs.description import JobDescription
from pilotage.core.jobs.lengths import LENGTHS
from pilotage.core.trace_context import VARIABLE, TraceContext, read_traceparent


def with_trace(description: JobDescription, header: str) -> JobDescription:
    """The description of jobs that continue this trace. An environment that is full stays as it is."""
    others = tuple(item for item in description.environment if item[0] != VARIABLE)
    if not header or len(others) >= LENGTHS["environment"].max_entries:
        return description
    return replace(description, environment=(*others, (VARIABLE, header)))


def trace_of(description: JobDescription) -> TraceContext | None:
    """The trace that the jobs continue; None: they continue none."""
    return read_traceparent(dict(description.environment).get(VARIABLE, ""))
