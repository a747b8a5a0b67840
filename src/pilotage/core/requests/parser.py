"""Parser of requests: TOML, YAML and JSON texts, or a mapping. All mistakes are reported at once."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, Final

from pilotage.core.datasets.document import lines_of, read_document
from pilotage.core.datasets.facts import check_data_set_name
from pilotage.core.errors import InvalidInput
from pilotage.core.requests.fields import LOG_COLLECT, MERGE, OUTPUT, REQUEST, RETRY, STEP
from pilotage.core.requests.reading import Lines, MistakeLog, Path, TableReader
from pilotage.core.requests.specification import (
    BLOCK,
    MAX_STEPS,
    MONTE_CARLO,
    LogCollect,
    Merge,
    Output,
    Retry,
    Specification,
    Step,
    StepSplitting,
)
from pilotage.core.requests.step_parts import read_merge, read_program, read_splitting
from pilotage.core.requests.validation import check_request

NOUN: Final = "a request"
NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}\Z")
_STEP_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,49}\Z")
_STORAGE_NAME: Final = _STEP_NAME

_TABLES: Final = {
    **{field.name: "[retry]" for field in RETRY},
    **{field.name: "[output]" for field in OUTPUT},
    **{field.name: "[log_collect]" for field in LOG_COLLECT},
    **{field.name: "[merge]" for field in MERGE},
    **{field.name: "a step" for field in STEP},
    **{field.name: "the request" for field in REQUEST},
}
_STEP_FIELDS: Final = tuple(field for field in STEP if field.name != "name")


def parse_text(text: str, kind: str) -> tuple[Specification, dict[str, Any]]:
    """The request of a text of kind `toml`, `yaml` or `json`, and its mapping. Raises `InvalidInput` with lines."""
    mapping = read_document(text, kind, NOUN)
    return parse_mapping(mapping, lambda paths: lines_of(text, kind, paths)), mapping


def _no_lines(_: Iterable[Path]) -> Mapping[Path, int]:
    return {}


def parse_mapping(mapping: Mapping[str, Any], lines: Lines = _no_lines) -> Specification:
    """The request of a mapping. Raises `InvalidInput` with all mistakes."""
    log = MistakeLog()
    several = "steps" in mapping
    fields = REQUEST if several else (*REQUEST, *_STEP_FIELDS)
    reader = TableReader(log, (), mapping, fields, _TABLES)
    steps = _read_steps(log, reader, mapping["steps"]) if several else [_read_step(log, reader, "process")]
    specification = Specification(
        name=_checked_name(reader, NAME, "._-") or "",
        steps=tuple(steps),
        log_collect=_read_log_collect(log, reader),
        **{
            name: reader.value(name)
            for name in (
                *("group", "priority", "team", "campaign", "sites", "banned_sites"),
                *("trust_input", "trust_pileup", "open_for"),
            )
        },
    )
    check_request(specification, log, several=several)
    log.check(lines)
    return specification


def _checked_name(reader: TableReader, pattern: re.Pattern[str], marks: str) -> str | None:
    name: str | None = reader.value("name")
    if name is not None and not pattern.match(name):
        hint = f"use letters, digits and {' '.join(marks)}; begin with a letter or digit"
        reader.mistake("name", f"{name[:60]!r} cannot be a name", hint)
    return name


def _read_steps(log: MistakeLog, reader: TableReader, value: Any) -> list[Step]:
    if not isinstance(value, list) or not value or not all(isinstance(item, Mapping) for item in value):
        reader.mistake("steps", "steps must be a list of tables", "write [[steps]] above each step")
        return []
    if len(value) > MAX_STEPS:
        reader.mistake("steps", f"the request has {len(value):,} steps; the limit is {MAX_STEPS}")
    steps: list[Step] = []
    for number, item in enumerate(value[:MAX_STEPS]):
        table = TableReader(log, ("steps", str(number)), item, STEP, _TABLES)
        name = _checked_name(table, _STEP_NAME, "_-") if table.has("name") else f"step{number + 1}"
        before = steps[-1].name if steps else ""
        steps.append(_read_step(log, table, name or "", before))
    return steps


def _read_step(log: MistakeLog, reader: TableReader, name: str, before: str = "") -> Step:
    """`before`: the name of the step before; its output is the input of a step that names none."""
    inputs = _dataset_names(reader, "input")
    events = reader.value("events")
    after = reader.value("after")
    if not after and not reader.has("input") and not reader.has("events"):
        after = before
    return Step(
        name=name,
        program=read_program(log, reader.path("program"), reader.table("program")),
        splitting=read_splitting(log, reader.path("splitting"), reader.table("splitting"))
        or StepSplitting(""),
        type=reader.value("type"),
        start_policy=reader.value("start_policy") or (MONTE_CARLO if reader.has("events") else BLOCK),
        input=inputs,
        after=after,
        events=events,
        pileup=_dataset_names(reader, "pileup"),
        blocks=reader.value("blocks"),
        banned_blocks=reader.value("banned_blocks"),
        runs=reader.value("runs"),
        merge=_read_merge(log, reader),
        output=_read_output(log, reader),
        retry=_read_retry(log, reader),
    )


def _dataset_names(reader: TableReader, name: str) -> tuple[str, ...]:
    names: tuple[str, ...] = reader.value(name)
    for dataset in names:
        try:
            check_data_set_name(dataset)
        except InvalidInput as error:
            reader.mistake(name, error.message, error.hint)
    return names


def _read_merge(log: MistakeLog, reader: TableReader) -> Merge | None:
    table = reader.table("merge", true_is_empty=True)
    if table is None:
        return None
    return read_merge(
        log, reader.path("merge"), TableReader(log, reader.path("merge"), table, MERGE, _TABLES)
    )


def _read_log_collect(log: MistakeLog, reader: TableReader) -> LogCollect | None:
    table = reader.table("log_collect", true_is_empty=True)
    if table is None:
        return None
    inner = TableReader(log, reader.path("log_collect"), table, LOG_COLLECT, _TABLES)
    return LogCollect(
        _dataset_name(inner),
        _places(inner),
        *(inner.value(name) for name in ("max_size", "max_files", "cleanup")),
    )


def _dataset_name(reader: TableReader) -> str:
    """The field `dataset`; a name that cannot be one is a mistake."""
    name: str = reader.value("dataset")
    if name:
        try:
            check_data_set_name(name)
        except InvalidInput as error:
            reader.mistake("dataset", error.message, error.hint)
    return name


def _places(reader: TableReader) -> tuple[str, ...]:
    """The field `places`. The policy has only absolute paths, and tables `storage.NAME`."""
    places: tuple[str, ...] = reader.value("places")
    for place in places:
        if not place.startswith("/") and not _STORAGE_NAME.fullmatch(place):
            hint = "name an absolute path, such as /data/pilotage, or a table `storage.NAME` of the policy"
            reader.mistake("places", f"{place!r} cannot be a storage place", hint)
    return places


def _read_output(log: MistakeLog, reader: TableReader) -> Output:
    table = reader.table("output")
    if table is None:
        return Output()
    inner = TableReader(log, reader.path("output"), table, OUTPUT, _TABLES)
    return Output(inner.value("files") or (), _dataset_name(inner), _places(inner), inner.value("max_size"))


def _read_retry(log: MistakeLog, reader: TableReader) -> Retry:
    table = reader.table("retry")
    if table is None:
        return Retry()
    inner = TableReader(log, reader.path("retry"), table, RETRY, _TABLES)
    names = ("max_retries", "cooloff", "growth", "fatal_exit_codes", "pass_exit_codes")
    return Retry(**{name: inner.value(name) for name in names})
