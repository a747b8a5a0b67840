"""Requests as JSON, as the database stores them."""

from __future__ import annotations

from dataclasses import asdict, fields
from functools import lru_cache
from typing import Any

import msgspec

from pilotage.core.jobs.json_format import description_from_json, description_to_json
from pilotage.core.requests.plan import PlannedStep, plan_steps
from pilotage.core.requests.specification import (
    LogCollect,
    Merge,
    Output,
    Program,
    Retry,
    Specification,
    Step,
    StepSplitting,
    UploadedFile,
)


def specification_to_text(request: Specification) -> str:
    """JSON with sorted keys: equal requests have equal texts."""
    return msgspec.json.encode(_request_to_json(request), order="sorted").decode()


@lru_cache(maxsize=64)
def specification_from_text(text: str) -> Specification:
    """The inverse of `specification_to_text`. The request was checked before and is not checked again."""
    plain = msgspec.json.decode(text)
    steps = tuple(_step_from_json(step) for step in plain.pop("steps"))
    if "log_collect" in plain:
        collect = {name: _frozen(value) for name, value in plain["log_collect"].items()}
        plain["log_collect"] = LogCollect(**collect)
    return Specification(steps=steps, **{name: _frozen(value) for name, value in plain.items()})


@lru_cache(maxsize=64)
def stored_steps(text: str, number: int) -> tuple[PlannedStep, ...]:
    """The steps of the stored request with this number, by position."""
    return plan_steps(specification_from_text(text), number)


def _request_to_json(request: Specification) -> dict[str, Any]:
    plain = {
        field.name: value
        for field in fields(Specification)
        if (value := getattr(request, field.name)) != field.default and field.name != "steps"
    }
    if request.log_collect is not None:
        plain["log_collect"] = asdict(request.log_collect)
    return {**plain, "steps": [_step_to_json(step) for step in request.steps]}


def _step_to_json(step: Step) -> dict[str, Any]:
    plain = {
        field.name: value
        for field in fields(Step)
        if (value := getattr(step, field.name)) != field.default
        and field.name not in ("program", "splitting", "merge", "output", "retry")
    }
    plain["program"] = _program_to_json(step.program)
    plain["splitting"] = _splitting_to_json(step.splitting)
    if step.merge is not None:
        program = step.merge.program
        plain["merge"] = {"parameters": dict(step.merge.parameters)}
        if step.merge.cleanup:
            plain["merge"]["cleanup"] = True
        if program is not None:
            plain["merge"]["program"] = _program_to_json(program)
    if step.output != Output():
        plain["output"] = asdict(step.output)
    if step.retry != Retry():
        plain["retry"] = asdict(step.retry)
    return plain


def _program_to_json(program: Program) -> dict[str, Any]:
    plain: dict[str, Any] = {"description": description_to_json(program.description)}
    if program.inputs:
        plain["inputs"] = [asdict(file) for file in program.inputs]
    return plain


def _splitting_to_json(splitting: StepSplitting) -> dict[str, Any]:
    return {"algorithm": splitting.algorithm, "parameters": dict(splitting.parameters)}


def splitting_to_text(splitting: StepSplitting) -> str:
    """The column `request_steps.splitting`."""
    return msgspec.json.encode(_splitting_to_json(splitting), order="sorted").decode()


def _step_from_json(plain: dict[str, Any]) -> Step:
    values = {name: _frozen(value) for name, value in plain.items()}
    values["program"] = _program_from_json(plain["program"])
    splitting = plain["splitting"]
    values["splitting"] = StepSplitting(splitting["algorithm"], _parameters(splitting["parameters"]))
    if "merge" in plain:
        merge = plain["merge"]
        program = _program_from_json(merge["program"]) if "program" in merge else None
        values["merge"] = Merge(_parameters(merge["parameters"]), program, merge.get("cleanup", False))
    for name, kind in (("output", Output), ("retry", Retry)):
        if name in plain:
            values[name] = kind(**{key: _frozen(value) for key, value in plain[name].items()})
    return Step(**values)


def _program_from_json(plain: dict[str, Any]) -> Program:
    inputs = tuple(UploadedFile(**file) for file in plain.get("inputs", ()))
    return Program(description_from_json(plain["description"]), inputs)


def _parameters(plain: dict[str, Any]) -> tuple[tuple[str, Any], ...]:
    return tuple(sorted(plain.items()))


def _frozen(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value
