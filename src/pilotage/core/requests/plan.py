"""The steps that follow from a request: the rows that the work queue works on."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from pilotage.core.requests.specification import (
    ARCHIVE,
    BLOCK,
    CLEANUP,
    CLEANUP_ALGORITHM,
    CONCATENATE,
    LOG_COLLECT,
    LOG_COLLECT_ALGORITHM,
    MERGE,
    MERGE_ALGORITHM,
    REMOVE,
    RESUBMIT,
    LogCollect,
    Merge,
    Output,
    Program,
    Retry,
    Specification,
    Step,
    StepSplitting,
)

UNMERGED = "/unmerged"
"""Ending of the name of a data set whose files will be merged."""
MAX_FILES = 10_000
"""Files of a cleanup job: the most that splitting by files allows."""

LOGS = "logs"
"""The first part of the names of the steps that archive logs, and the last part of the name of their data set."""
LOG_FILE, LOG_ARCHIVE = "logs.tar.gz", "logs.tar"
"""The logs of one job, and the logs of many."""
NO_OUTPUT = Output()
WITHOUT_LOGS = frozenset({CLEANUP, LOG_COLLECT})
"""Types of steps whose jobs store no logs."""

REST = ".rest"
"""Ending of the name of a step that reads the outputs of resubmitted jobs."""


@dataclass(frozen=True, slots=True)
class PlannedStep:
    """One row of `request_steps`, and the facts that only its specification has."""

    position: int
    name: str
    type: str
    start_policy: str
    splitting: StepSplitting
    input: str
    """Name of the data set; empty for a generator."""
    after: int | None
    """The position of the step that writes the input."""
    events: int
    pileup: tuple[str, ...]
    blocks: tuple[str, ...]
    banned_blocks: tuple[str, ...]
    runs: tuple[int, ...]
    output: Output
    """With the name of its data set; without files: it writes none."""
    program: Program | None
    """None: `action` is done by the pilot itself."""
    action: str
    retry: Retry
    logs: Output = NO_OUTPUT
    """The logs of each of its jobs, with the name of their data set; without files: they are not stored."""


def plan_steps(request: Specification, number: int) -> tuple[PlannedStep, ...]:
    """The steps of the request with this number, in the order of their positions: merges and cleanups included."""
    base = _plan(request, number)
    return _resubmission(request, base) if request.resubmits else base


def _resubmission(request: Specification, base: tuple[PlannedStep, ...]) -> tuple[PlannedStep, ...]:
    """Each step of the earlier request makes its failed jobs again; further steps read the outputs of these.

    Data sets that a further step reads are new, since the earlier ones are closed and were taken. The others are the
    data sets of the first request: so its result becomes whole. `base`: as if nothing were resubmitted.
    """
    *before, last = request.resubmits
    earlier = plan_steps(replace(request, resubmits=tuple(before)), last)
    new = {step.name: step for step in base}
    rows = [
        replace(
            step,
            start_policy=RESUBMIT,
            # A cleanup waits for its merge; the other steps have their input.
            after=step.after if step.type == CLEANUP else None,
            events=0,
            output=new[_base_name(step)].output,
            logs=new[_base_name(step)].logs,
        )
        for step in earlier
    ]
    generation = str(len(request.resubmits)) if before else ""
    for step in base:
        if step.after is not None:
            before_it = base[step.after].name
            after = max(row.position for row in rows if _base_name(row) == before_it)
            name = f"{step.name}{REST}{generation}"
            rows.append(replace(step, name=name, position=len(rows), after=after))
    return tuple(rows)


def _base_name(step: PlannedStep) -> str:
    return step.name.partition(REST)[0]


def _plan(request: Specification, number: int) -> tuple[PlannedStep, ...]:
    planned: list[PlannedStep] = []
    last: dict[str, PlannedStep] = {}
    for step in request.steps:
        for row in _rows(request, step, number, len(planned), last.get(step.after)):
            planned.append(row)
            last[step.name] = row
    for step in request.steps:
        if step.merge is not None and step.merge.cleanup:
            planned.append(_cleanup_after(last[step.name], step.name, len(planned)))
    if request.log_collect is not None:
        planned = list(_with_logs(request, request.log_collect, number, planned))
    return tuple(planned)


def _with_logs(
    request: Specification, collect: LogCollect, number: int, planned: list[PlannedStep]
) -> Iterator[PlannedStep]:
    """The planned steps, whose jobs store their logs; the row that archives the logs; the row that removes them."""
    dataset = _dataset_name(request, LOGS, collect.dataset, number, is_read=False)
    unmerged = _dataset_name(request, LOGS, collect.dataset, number, is_read=True) + UNMERGED
    logs = Output((LOG_FILE,), unmerged, collect.places)
    for step in planned:
        yield step if step.type in WITHOUT_LOGS else replace(step, logs=logs)
    last = max((step for step in planned if step.type not in WITHOUT_LOGS), key=lambda step: step.position)
    parameters = (("max_files", collect.max_files), ("size_per_job", collect.max_size))
    archive = replace(
        _without_input(last),
        position=len(planned),
        name=f"{LOGS}.collect",
        type=LOG_COLLECT,
        splitting=StepSplitting(LOG_COLLECT_ALGORITHM, parameters),
        input=logs.dataset,
        after=last.position,
        output=Output((LOG_ARCHIVE,), dataset, collect.places),
        program=None,
        action=ARCHIVE,
        retry=Retry(),
    )
    yield archive
    if collect.cleanup:
        yield _cleanup_after(archive, LOGS, len(planned) + 1)


def rows_of_step(planned: Sequence[PlannedStep], row: PlannedStep) -> tuple[PlannedStep, ...]:
    """The rows of the step of `row`, one for each input, in a request that resubmits none."""
    first = _without_number(row.name)
    return tuple(other for other in planned if other.name == row.name or _without_number(other.name) == first)


def _without_number(name: str) -> str:
    base, _, number = name.partition(".")
    return base if number.isdigit() else name


def _dataset_name(request: Specification, step: str, given: str, number: int, *, is_read: bool) -> str:
    """The name of an output data set. `is_read`: by a further step; `given`: by the user, or empty."""
    if not request.resubmits:
        return given or f"{request.name}-{number}/{step}"
    if not is_read:
        return given or f"{request.name}-{request.resubmits[0]}/{step}"
    return f"{given}.{number}" if given else f"{request.name}-{number}/{step}"


def _rows(
    request: Specification, step: Step, number: int, position: int, before: PlannedStep | None
) -> Iterator[PlannedStep]:
    """A row for each input of a step, then that of its merge. `before`: the row that writes its input.

    Rows of several inputs write the same data set. It is closed when all of them have ended.
    """
    output, written = step.output, step.output
    if output.files:
        is_read = any(other.after == step.name for other in request.steps)
        dataset = _dataset_name(request, step.name, output.dataset, number, is_read=is_read)
        output = written = replace(output, dataset=dataset)
    if step.merge:
        unmerged = _dataset_name(request, step.name, step.output.dataset, number, is_read=True) + UNMERGED
        written = replace(output, dataset=unmerged)
    inputs = (before.output.dataset,) if before else step.input or ("",)
    for place, dataset in enumerate(inputs):
        row = PlannedStep(
            position=position + place,
            name=f"{step.name}.{place + 1}" if place else step.name,
            type=step.type,
            start_policy=step.start_policy,
            splitting=step.splitting,
            input=dataset,
            after=before.position if before else None,
            events=step.events,
            pileup=step.pileup,
            blocks=step.blocks,
            banned_blocks=step.banned_blocks,
            runs=step.runs,
            output=written,
            program=step.program,
            action="",
            retry=step.retry,
        )
        yield row
    if step.merge is not None:
        yield _merge_of(step, row, step.merge, output)


def _merge_of(step: Step, row: PlannedStep, merge: Merge, output: Output) -> PlannedStep:
    """The row that merges the output of `row`, the last one of its step, to `output`."""
    return replace(
        _without_input(row),
        position=row.position + 1,
        name=f"{step.name}.merge",
        type=MERGE,
        splitting=StepSplitting(MERGE_ALGORITHM, merge.parameters),
        input=row.output.dataset,
        after=row.position,
        output=output,
        program=merge.program,
        action="" if merge.program else CONCATENATE,
    )


def _without_input(row: PlannedStep) -> PlannedStep:
    """A row that takes every block of its input, which the caller names."""
    return replace(
        row, start_policy=BLOCK, input="", events=0, pileup=(), blocks=(), banned_blocks=(), runs=()
    )


def _cleanup_after(merge: PlannedStep, name: str, position: int) -> PlannedStep:
    """The row that removes the input of a merge: one job for each block, at the site that has it."""
    return replace(
        merge,
        position=position,
        name=f"{name}.cleanup",
        type=CLEANUP,
        splitting=StepSplitting(CLEANUP_ALGORITHM, (("files_per_job", MAX_FILES),)),
        after=merge.position,
        output=Output(),
        program=None,
        action=REMOVE,
        retry=Retry(),
    )
