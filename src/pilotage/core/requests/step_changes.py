"""Changes of the splitting and the resources of a request's steps, before it has work."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

from pilotage.core.errors import InvalidInput
from pilotage.core.jobs.description import Submission
from pilotage.core.jobs.overrides import override_fields
from pilotage.core.requests.reading import MistakeLog
from pilotage.core.requests.specification import Program, Specification, Step, StepSplitting
from pilotage.core.requests.step_parts import read_splitting

RESOURCES: Final = ("processors", "memory", "disk", "wall_time", "cpu_time")
"""Fields of a job description that may change."""
TOTALS: Final = frozenset({"total_files", "total_events"})
"""Parameters of a splitting that decide which parts of the input are processed at all."""


@dataclass(frozen=True, slots=True)
class StepChanges:
    """New values; absent ones are as before. Values are as in a file of a request: numbers, `2 GB`, `90 min`."""

    step: str = ""
    """The name of the step that changes; empty: each step of the request's file."""
    resources: Mapping[str, Any] = field(default_factory=dict)
    splitting: Mapping[str, Any] = field(default_factory=dict)
    """Parameters of the step's algorithm."""

    @property
    def is_empty(self) -> bool:
        return not (self.resources or self.splitting)

    def apply(self, request: Specification) -> Specification:
        """The request with these values. Raises `InvalidInput` for a step, field or value that cannot be."""
        names = [step.name for step in request.steps]
        if self.step and self.step not in names:
            raise InvalidInput(
                f"the request has no step {self.step}", hint=f"steps: {', '.join(names)}", field="step"
            )
        for name in self.resources:
            if name not in RESOURCES:
                raise InvalidInput(
                    f"{name} of a request cannot change",
                    hint=f"these can: {', '.join(RESOURCES)}",
                    field=name,
                )
        if request.resubmits and (totals := sorted(TOTALS & self.splitting.keys())):
            raise InvalidInput(
                f"{totals[0]} cannot change: a resubmission makes exactly the parts that failed",
                hint="the size of its jobs can change, such as events_per_job; a clone takes other totals",
                field="splitting",
            )
        steps = tuple(
            self._changed(step) if not self.step or step.name == self.step else step for step in request.steps
        )
        return replace(request, steps=steps)

    def _changed(self, step: Step) -> Step:
        described = override_fields(Submission(step.program.description), self.resources).description
        splitting = _resplit(step, self.splitting) if self.splitting else step.splitting
        return replace(step, program=Program(described, step.program.inputs), splitting=splitting)


NO_STEP_CHANGES: Final = StepChanges()


def _resplit(step: Step, parameters: Mapping[str, Any]) -> StepSplitting:
    log = MistakeLog()
    values = {**dict(step.splitting.parameters), **parameters, "algorithm": step.splitting.algorithm}
    splitting = read_splitting(log, ("splitting",), values)
    log.check(lambda _: {})
    assert splitting is not None
    return splitting
