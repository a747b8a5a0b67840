"""Parsers of job descriptions in YAML and JSON, from a text or a loaded mapping."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any, Final, NoReturn

from pilotage.core.errors import InvalidInput, TooLarge
from pilotage.core.jobs.builder import (
    WrittenAttribute,
    build_submission,
    check_attribute_count,
    parameter_values,
    unknown_attribute,
)
from pilotage.core.jobs.description import Scalar, Submission
from pilotage.core.jobs.fields import BY_JDL, BY_NAME
from pilotage.core.jobs.jdl import parse_jdl
from pilotage.core.jobs.parametric import progression
from pilotage.core.jobs.yaml_reader import read_mapping
from pilotage.core.nesting import check_brackets

MAX_TEXT: Final = 16 * 1024 * 1024


def description_from_text(text: str, kind: str) -> Submission:
    """The submission of a text of kind `jdl`, `yaml` or `json`; errors carry the line."""
    readers = {"jdl": parse_jdl, "yaml": from_yaml, "json": from_json}
    if kind not in readers:
        raise InvalidInput(f"unknown format of a job description: {kind!r}", hint="use jdl, yaml or json")
    return readers[kind](text)


def parse_yaml_mapping(
    mapping: Mapping[str, Any],
    places: Mapping[str, tuple[int, int]] | None = None,
    *,
    names: Sequence[str] = (),
) -> Submission:
    """The submission of a mapping with snake_case names. `places` are (line, column) of its keys.

    `names` are parameters with values that follow later.
    """
    places = places or {}
    check_attribute_count(len(mapping))
    fields = []
    sequences: dict[str, tuple[Scalar, ...]] = {}
    mistakes: list[InvalidInput] = []
    for name, value in mapping.items():
        entry = WrittenAttribute(str(name), value, *places.get(str(name), (None, None)))
        try:
            if name == "parameters":
                sequences = _sequences(entry)
            elif name in BY_NAME:
                fields.append((BY_NAME[name], entry))
            else:
                raise _unknown(entry)
        except InvalidInput as error:
            mistakes.append(error)
    return build_submission(fields, sequences, names, mistakes)


def _unknown(entry: WrittenAttribute) -> InvalidInput:
    field = BY_JDL.get(entry.name.lower())
    if field is not None:
        return entry.error(f"unknown attribute {entry.name!r}", f"in YAML and JSON its name is {field.name}")
    return unknown_attribute(entry, (*BY_NAME, "parameters"))


_PROGRESSION: Final = frozenset({"count", "start", "step", "factor"})


def _sequences(entry: WrittenAttribute) -> dict[str, tuple[Scalar, ...]]:
    """A list, a progression, or a mapping of names to either."""
    value = entry.value
    if isinstance(value, Mapping) and not (value and "count" in value and value.keys() <= _PROGRESSION):
        if not value:
            raise entry.error("parameters must not be empty")
        return {str(name): _sequence(entry, item, str(name)) for name, item in value.items()}
    return {"": _sequence(entry, value, "")}


def _sequence(entry: WrittenAttribute, value: Any, name: str) -> tuple[Scalar, ...]:
    if isinstance(value, list | tuple):
        return parameter_values(entry, value)
    if not name and isinstance(value, int) and not isinstance(value, bool):
        value = {"count": value}
    if isinstance(value, Mapping) and "count" in value and value.keys() <= _PROGRESSION:
        try:
            return progression(**value, name=name)
        except InvalidInput as error:
            raise type(error)(
                error.message, hint=error.hint, line=entry.line, column=entry.column, field="parameters"
            ) from error
    title = f"parameters {name}".rstrip()
    raise entry.error(f"{title} must be a list of values, or a mapping with count, start, step and factor")


def from_json(text: str) -> Submission:
    """The submission of a JSON text: one object without repeated names."""
    return parse_yaml_mapping(_read_json(text))


def mapping_from_text(text: str, kind: str) -> Mapping[str, Any]:
    """The mapping of a text of kind `yaml` or `json`, with its fields unread."""
    if kind == "json":
        return _read_json(text)
    _check_size(text)
    return read_mapping(text)[0]


def _read_json(text: str) -> Mapping[str, Any]:
    _check_size(text)
    loaded = read_json(text)
    if not isinstance(loaded, dict):
        raise InvalidInput("a job description must be one JSON object")
    return loaded


def read_json(text: str) -> Any:
    """A JSON value: no name is given twice, and its numbers are finite."""

    def pairs(items: list[tuple[str, Any]]) -> dict[str, Any]:
        seen: dict[str, Any] = {}
        for name, value in items:
            if name in seen:
                raise InvalidInput(f"{name!r} is given twice")
            seen[name] = value
        return seen

    def real(digits: str) -> float:
        value = float(digits)
        return value if math.isfinite(value) else constant(digits)

    def constant(name: str) -> NoReturn:
        raise InvalidInput(f"{name} is not a finite number")

    check_brackets(text)
    try:
        return json.loads(text, object_pairs_hook=pairs, parse_constant=constant, parse_float=real)
    except json.JSONDecodeError as error:
        raise InvalidInput(f"invalid JSON: {error.msg}", line=error.lineno, column=error.colno) from error
    except (RecursionError, ValueError) as error:
        raise InvalidInput("invalid JSON: a number is too long") from error


def from_yaml(text: str) -> Submission:
    """The submission of a YAML text: one mapping without repeated names, anchors or tags.

    Scalars follow YAML 1.2: `no`, `010` and `12:30` are texts.
    """
    _check_size(text)
    return parse_yaml_mapping(*read_mapping(text))


def _check_size(text: str) -> None:
    if len(text) > MAX_TEXT:
        raise TooLarge(f"the job description exceeds {MAX_TEXT:,} characters")
