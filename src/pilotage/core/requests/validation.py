"""Conditions between the fields of a request."""

from __future__ import annotations

from collections import Counter

from pilotage.core.requests.plan import LOGS
from pilotage.core.requests.reading import MistakeLog, Path
from pilotage.core.requests.specification import Specification, Step
from pilotage.core.requests.start_policies import GIVEN_BY_USERS, START_POLICIES
from pilotage.core.requests.start_policy import Reads
from pilotage.core.requests.step_parts import check_patterns
from pilotage.core.splitting.algorithms import ALGORITHMS


def check_request(request: Specification, log: MistakeLog, *, several: bool) -> None:
    """Note all contradictions. `several`: the request has a list of steps."""
    if request.sites and set(request.sites) <= set(request.banned_sites):
        log.add(("sites",), "all sites are also in banned_sites")
    if request.open_for and not request.input_datasets and request.steps:
        log.add(("open_for",), "open_for needs an input data set that can grow")
    for name, count in Counter(step.name for step in request.steps).items():
        if count > 1:
            log.add(("steps",), f"{count} steps have the name {name!r}", "give each step a name of its own")
    earlier: dict[str, Step] = {}
    for number, step in enumerate(request.steps):
        path = ("steps", str(number)) if several else ()
        _check_input(step, earlier, path, log)
        _check_splitting(step, path, log)
        _check_output(step, path, log)
        if request.log_collect is not None and step.name == LOGS:
            log.add((*path, "name"), f"with log_collect no step has the name {LOGS}", "use another name")
        earlier[step.name] = step
    _check_datasets(request, several, log)


def _check_input(step: Step, earlier: dict[str, Step], path: Path, log: MistakeLog) -> None:
    given = [name for name in ("input", "after", "events") if getattr(step, name)]
    if not given:
        log.add(
            path,
            "the step has neither input nor events",
            "name a data set, or a number of events to generate",
        )
    elif len(given) > 1:
        log.add((*path, given[1]), f"{' and '.join(given)} exclude each other", "keep one of them")
    if step.after and step.after not in earlier:
        known = ", ".join(earlier) or "none"
        log.add((*path, "after"), f"there is no step {step.after!r} before this one", f"before it: {known}")
    elif step.after and not earlier[step.after].output.files:
        hint = f"give {step.after} an output"
        log.add(path, f"the step {step.after} writes no data set that could be the input", hint)
    generates = START_POLICIES[step.start_policy].reads is Reads.GENERATOR
    if generates != bool(step.events) and given:
        able = (
            name for name in GIVEN_BY_USERS if (START_POLICIES[name].reads is Reads.GENERATOR) != generates
        )
        message = f"{step.start_policy} does not go with {given[0]}"
        log.add((*path, "start_policy"), message, f"start policies that go with it: {', '.join(able)}")
    if step.events and (step.blocks or step.banned_blocks or step.runs):
        log.add(
            path, "events that are generated have no blocks or runs", "remove blocks, banned_blocks and runs"
        )


def _check_splitting(step: Step, path: Path, log: MistakeLog) -> None:
    kind = ALGORITHMS.get(step.splitting.algorithm)
    if step.events and kind is not None and not kind.generates:
        able = ", ".join(name for name, other in ALGORITHMS.items() if other.generates)
        message = f"{step.splitting.algorithm} cannot split events that are generated"
        log.add((*path, "splitting", "algorithm"), message, f"{able} can")


def _check_output(step: Step, path: Path, log: MistakeLog) -> None:
    check_patterns(log, (*path, "output", "files"), step.output.files)
    if step.merge is not None and not step.output.files:
        log.add((*path, "merge"), "there is no output to merge", "add output.files")


def _check_datasets(request: Specification, several: bool, log: MistakeLog) -> None:
    """An output data set belongs to one step, and is nobody's input by its name."""
    writers: dict[str, str] = {}
    for number, step in enumerate(request.steps):
        dataset = step.output.dataset
        path = ("steps", str(number), "output", "dataset") if several else ("output", "dataset")
        if dataset and dataset in writers:
            log.add(path, f"{writers[dataset]} writes the data set {dataset} already", "use another name")
        elif dataset and dataset in (*request.input_datasets, *request.pileup_datasets):
            hint = "use another name; a step reads the output of another step with `after`"
            log.add(path, f"{dataset} is both an input and an output", hint)
        writers[dataset] = step.name
    logs = request.log_collect.dataset if request.log_collect is not None else ""
    if logs and logs in (*writers, *request.input_datasets, *request.pileup_datasets):
        log.add(("log_collect", "dataset"), f"{logs} is also the data set of a step", "use another name")
