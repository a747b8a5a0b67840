"""Reads the parts of a step that other rooms define: the program, the splitting, and the merge."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from pilotage.core.errors import InvalidInput
from pilotage.core.jobs.description import JobDescription, check_relative_path
from pilotage.core.jobs.fields import FIELDS
from pilotage.core.jobs.parsers import parse_yaml_mapping
from pilotage.core.requests.fields import NOT_IN_PROGRAMS
from pilotage.core.requests.reading import MistakeLog, Path, TableReader, amount_of_bytes, check_type
from pilotage.core.requests.specification import MERGE_ALGORITHM, Merge, Program, StepSplitting
from pilotage.core.splitting.algorithm import KILOBYTE
from pilotage.core.splitting.algorithms import ALGORITHMS
from pilotage.core.splitting.parser import parse_splitting

STRICT_IN_PROGRAMS: Final = ("boolean", "integer", "seconds", "megabytes")
_UNREAD: Final = Program(JobDescription("unread"))


def read_program(log: MistakeLog, path: Path, values: Mapping[str, Any] | None) -> Program:
    """The program of a table. Its mistakes are worded as in job descriptions."""
    if values is None:
        return _UNREAD
    for name in (name for name in NOT_IN_PROGRAMS if name in values):
        log.add((*path, name), f"a program has no {name}", NOT_IN_PROGRAMS[name])
    for field in FIELDS:
        if field.kind in STRICT_IN_PROGRAMS and field.name in values:
            try:
                check_type(field, values[field.name])
            except InvalidInput as error:
                log.add((*path, field.name), error.message, error.hint)
                return _UNREAD
    try:
        known = {name: value for name, value in values.items() if name not in NOT_IN_PROGRAMS}
        submission = parse_yaml_mapping(known)
    except InvalidInput as error:
        log.add_error(path, error)
        return _UNREAD
    return Program(submission.description)


def read_splitting(log: MistakeLog, path: Path, values: Mapping[str, Any] | None) -> StepSplitting | None:
    """The algorithm and its parameters, checked by the algorithm."""
    if values is None:
        return None
    name = values.get("algorithm")
    if not isinstance(name, str):
        log.add(path, f"{'.'.join(path)}.algorithm is missing", f"known: {', '.join(sorted(ALGORITHMS))}")
        return None
    parameters = {key: _amount(key, value) for key, value in values.items() if key != "algorithm"}
    try:
        parse_splitting(name, parameters)
    except InvalidInput as error:
        log.add_error(path, error)
        return None
    return StepSplitting(name, tuple(sorted(parameters.items())))


def _amount(parameter: str, value: Any) -> Any:
    if parameter == "size_per_event":
        amount = amount_of_bytes(value)
        return amount if amount is value else amount / KILOBYTE
    return amount_of_bytes(value) if "size" in parameter else value


def read_merge(log: MistakeLog, path: Path, reader: TableReader) -> Merge:
    names = ("min_size", "max_size", "max_events", "max_files", "across_runs")
    values = {name: value for name in names if (value := reader.value(name)) is not None}
    if "max_size" in values and "min_size" not in values:
        # Half of the largest size, as the default of both.
        values["min_size"] = min(values["max_size"] // 2, 2_000_000_000)
    if "min_size" in values and "max_size" not in values:
        values["max_size"] = max(values["min_size"] * 2, 4_000_000_000)
    try:
        parse_splitting(MERGE_ALGORITHM, values)
    except InvalidInput as error:
        log.add_error(path, error)
    table = reader.table("program")
    program = None if table is None else read_program(log, reader.path("program"), table)
    return Merge(tuple(sorted(values.items())), program, bool(reader.value("cleanup")))


def check_patterns(log: MistakeLog, path: Path, patterns: tuple[str, ...]) -> None:
    """Patterns of outputs stay in the folder of the job."""
    for pattern in patterns:
        try:
            check_relative_path(pattern, "files")
        except InvalidInput as error:
            log.add(path, error.message, error.hint)
