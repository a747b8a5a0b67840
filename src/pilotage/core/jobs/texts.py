"""Job descriptions in YAML and JSON: text or a mapping already loaded."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, Final, NoReturn

import yaml

from pilotage.core.errors import InvalidInput, TooLarge
from pilotage.core.jobs.building import Entry, build, scalars, unknown
from pilotage.core.jobs.description import Scalar, Submission
from pilotage.core.jobs.fields import BY_JDL, BY_NAME
from pilotage.core.jobs.jdl import parse_jdl
from pilotage.core.jobs.parametric import progression
from pilotage.core.jobs.reading import WrittenReal

MAX_TEXT: Final = 16 * 1024 * 1024
MAX_DEPTH: Final = 50


def description_from_text(text: str, kind: str) -> Submission:
    """The submission in a text of kind `jdl`, `yaml` or `json`; `InvalidInput` names the line at fault."""
    readers = {"jdl": parse_jdl, "yaml": from_yaml, "json": from_json}
    if kind not in readers:
        raise InvalidInput(f"{kind!r} is no kind of job description", hint="jdl, yaml or json")
    return readers[kind](text)


def parse_yaml_mapping(
    mapping: Mapping[str, Any],
    places: Mapping[str, tuple[int, int]] | None = None,
    *,
    names: Sequence[str] = (),
) -> Submission:
    """The submission a mapping of snake_case names describes; `places` are lines and columns of its keys.

    `names` are those of parameters whose values come later.
    """
    places = places or {}
    fields = []
    sequences: dict[str, tuple[Scalar, ...]] = {}
    mistakes: list[InvalidInput] = []
    for name, value in mapping.items():
        entry = Entry(str(name), value, *places.get(str(name), (None, None)))
        try:
            if name == "parameters":
                sequences = _sequences(entry)
            elif name in BY_NAME:
                fields.append((BY_NAME[name], entry))
            else:
                raise _unknown(entry)
        except InvalidInput as error:
            mistakes.append(error)
    return build(fields, sequences, names, mistakes)


def _unknown(entry: Entry) -> InvalidInput:
    field = BY_JDL.get(entry.name.lower())
    if field is not None:
        return entry.refused(f"there is no attribute {entry.name!r}", f"in YAML and JSON it is {field.name}")
    return unknown(entry, (*BY_NAME, "parameters"))


_PROGRESSION: Final = frozenset({"count", "start", "step", "factor"})


def _sequences(entry: Entry) -> dict[str, tuple[Scalar, ...]]:
    """A list, a progression, or a mapping of names to either."""
    value = entry.value
    if isinstance(value, Mapping) and not (value and "count" in value and value.keys() <= _PROGRESSION):
        if not value:
            raise entry.refused("parameters is empty")
        return {str(name): _sequence(entry, one, str(name)) for name, one in value.items()}
    return {"": _sequence(entry, value, "")}


def _sequence(entry: Entry, value: Any, name: str) -> tuple[Scalar, ...]:
    if isinstance(value, list | tuple):
        return scalars(entry, value)
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
    raise entry.refused(f"{title} must be a list of values, or count with start, step and factor")


def from_json(text: str) -> Submission:
    """The submission in a JSON text: one object, no name twice."""
    _check_size(text)

    def pairs(found: list[tuple[str, Any]]) -> dict[str, Any]:
        names = [name for name, _ in found]
        for name in names:
            if len(names) != len(set(names)) and names.count(name) > 1:
                raise InvalidInput(f"{name!r} is given twice", field=name)
        return dict(found)

    def constant(name: str) -> NoReturn:
        raise InvalidInput(f"{name} is not a number that can be used here")

    try:
        loaded = json.loads(text, object_pairs_hook=pairs, parse_constant=constant)
    except json.JSONDecodeError as error:
        raise InvalidInput(f"not JSON: {error.msg}", line=error.lineno, column=error.colno) from error
    except (RecursionError, ValueError) as error:
        raise InvalidInput("not JSON that can be read: nested too deep, or a number too long") from error
    if not isinstance(loaded, dict):
        raise InvalidInput("a job description is one object of names and values")
    return parse_yaml_mapping(loaded)


def from_yaml(text: str) -> Submission:
    """The submission in a YAML text: one mapping, no name twice, no anchors, no tags.

    Scalars are read as YAML 1.2 has it: `no`, `010` and `12:30` are texts.
    """
    _check_size(text)
    try:
        node = yaml.compose(text, Loader=_LOADER)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line, column = (mark.line + 1, mark.column + 1) if mark else (None, None)
        raise InvalidInput(f"not YAML: {error.problem or error.context}", line=line, column=column) from error
    except (yaml.YAMLError, RecursionError) as error:
        raise InvalidInput("not YAML that can be read: strange characters, or nested too deep") from error
    if not isinstance(node, yaml.MappingNode):
        raise InvalidInput("a job description is one mapping of names and values", line=1)
    marks = {str(key.value): key.start_mark for key, _ in node.value}
    places = {name: (mark.line + 1, mark.column + 1) for name, mark in marks.items()}
    return parse_yaml_mapping(_mapping(node, set(), 0), places)


def _check_size(text: str) -> None:
    if len(text) > MAX_TEXT:
        raise TooLarge(f"the description is longer than {MAX_TEXT:,} characters")


_LOADER: Final = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_CORE_TAG: Final = "tag:yaml.org,2002:"
_SCALAR_TAGS: Final = frozenset({"str", "int", "float", "bool", "null", "timestamp", "value", "merge"})
_QUOTED: Final = frozenset({"'", '"', "|", ">"})
_NULL: Final = frozenset({"", "~", "null", "Null", "NULL"})
_TRUTH: Final = {
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
}
_INTEGER: Final = re.compile(r"[-+]?(?:0|[1-9]\d{0,18})\Z")
_REAL: Final = re.compile(r"[-+]?(?:\d+\.\d*|\.\d+|\d+(?=[eE]))(?:[eE][-+]?\d+)?\Z")


def _refuse(node: yaml.Node, message: str, hint: str = "") -> NoReturn:
    mark = node.start_mark
    raise InvalidInput(message, hint=hint, line=mark.line + 1, column=mark.column + 1)


def _plain(node: yaml.Node, seen: set[int], depth: int) -> Any:
    # A node met twice was aliased; aliases of aliases can grow without end.
    if id(node) in seen:
        _refuse(node, "anchors and aliases are not accepted here", "write the value out")
    if depth > MAX_DEPTH:
        _refuse(node, f"nested deeper than {MAX_DEPTH} levels")
    seen.add(id(node))
    if isinstance(node, yaml.MappingNode):
        return _mapping(node, seen, depth)
    if isinstance(node, yaml.SequenceNode):
        _check_tag(node, frozenset({"seq"}))
        return [_plain(item, seen, depth + 1) for item in node.value]
    assert isinstance(node, yaml.ScalarNode)
    return _scalar(node)


def _mapping(node: yaml.MappingNode, seen: set[int], depth: int) -> dict[str, Any]:
    _check_tag(node, frozenset({"map"}))
    found: dict[str, Any] = {}
    for key, value in node.value:
        if not isinstance(key, yaml.ScalarNode):
            _refuse(key, "a name must be a text")
        if key.value in found:
            _refuse(key, f"{key.value!r} is given twice")
        found[key.value] = _plain(value, seen, depth + 1)
    return found


def _check_tag(node: yaml.Node, known: frozenset[str]) -> None:
    if node.tag.removeprefix(_CORE_TAG) not in known:
        _refuse(node, f"the tag {node.tag!r} is not accepted here")


def _scalar(node: yaml.ScalarNode) -> Any:
    text = node.value
    _check_tag(node, _SCALAR_TAGS)
    if node.style in _QUOTED or node.tag == f"{_CORE_TAG}str":
        return text
    if text in _NULL:
        return None
    if text in _TRUTH:
        return _TRUTH[text]
    if _INTEGER.match(text):
        return int(text)
    if _REAL.match(text):
        real = WrittenReal(text)
        real.text = text
        return real
    return text
