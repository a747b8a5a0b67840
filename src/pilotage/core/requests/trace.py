"""The trace that a request continues: it stands in the environment of its programs, as that of jobs does."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from pilotage.core.jobs.description import JobDescription
from pilotage.core.jobs.trace import trace_of, with_trace
from pilotage.core.requests.json_format import specification_from_text, specification_to_text
from pilotage.core.requests.specification import Program, Specification, Step
from pilotage.core.trace_context import VARIABLE, TraceContext


def with_trace_of_request(request: Specification, header: str) -> Specification:
    """The request whose programs continue this trace; without a header it stays as it is."""
    return _with_programs(request, lambda description: with_trace(description, header)) if header else request


def trace_of_request(request: Specification) -> TraceContext | None:
    """The trace of the first step; None: the request continues none."""
    return trace_of(request.steps[0].program.description)


def is_same_request(one: str, other: str) -> bool:
    """Whether two stored texts are of one request: a request that is sent again has another trace."""
    return one == other or _untraced(one) == _untraced(other)


def _untraced(text: str) -> str:
    def without(description: JobDescription) -> JobDescription:
        others = tuple(item for item in description.environment if item[0] != VARIABLE)
        return replace(description, environment=others)

    return specification_to_text(_with_programs(specification_from_text(text), without))


def _with_programs(
    request: Specification, change: Callable[[JobDescription], JobDescription]
) -> Specification:
    def changed(program: Program) -> Program:
        return replace(program, description=change(program.description))

    def step_with(step: Step) -> Step:
        merge = step.merge
        if merge is not None and merge.program is not None:
            merge = replace(merge, program=changed(merge.program))
        return replace(step, program=changed(step.program), merge=merge)

    return replace(request, steps=tuple(map(step_with, request.steps)))
