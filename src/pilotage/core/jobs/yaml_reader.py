"""Reads YAML into plain values, event by event.

The events come from libyaml, which parses without recursion. `yaml.compose` recurses in C for each level, so a text
with 50,000 brackets would crash the process.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final, NoReturn, TypeAlias

import yaml

from pilotage.core.errors import InvalidInput
from pilotage.core.jobs.value_readers import WrittenReal
from pilotage.core.nesting import MAX_NESTING, too_deep

MAX_TAG_DIRECTIVES: Final = 100

_LOADER: Final = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_CORE_TAG: Final = "tag:yaml.org,2002:"
_SCALAR_TAGS: Final = frozenset({"str", "int", "float", "bool", "null", "timestamp", "value", "merge"})
_NULL: Final = frozenset({"", "~", "null", "Null", "NULL"})
_TRUTH: Final = {
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
}
_INTEGER: Final = re.compile(r"[-+]?(?:0|[1-9]\d{0,18})\Z")
_REAL: Final = re.compile(r"[-+]?(?:\d+\.\d*|\.\d+|\d+(?=[eE]))(?:[eE][-+]?\d+)?\Z")
_LINE_BREAKS: Final = "\n\r\x85\u2028\u2029"


@dataclass(slots=True)
class _OpenCollection:
    """A collection that is being read. `key` is the name that its next value belongs to."""

    values: dict[str, Any] | list[Any]
    key: str | None = None


Places: TypeAlias = dict[str, tuple[int, int]]
"""Line and column of each name, from 1."""


def read_mapping(text: str, noun: str = "a job description") -> tuple[dict[str, Any], Places]:
    """The mapping of a document, and the positions of its names. Any other document raises `InvalidInput`.

    `noun` names the document in errors.
    """
    _check_directives(text)
    try:
        return _YamlReader(noun).read(text)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line, column = (mark.line + 1, mark.column + 1) if mark else (None, None)
        raise InvalidInput(
            f"invalid YAML: {error.problem or error.context}", line=line, column=column
        ) from error
    except (yaml.YAMLError, UnicodeEncodeError) as error:
        raise InvalidInput("invalid YAML: the text contains characters that are not allowed") from error


def paths_with_lines(text: str) -> Iterator[tuple[tuple[str, ...], int]]:
    """The path and line of every value of a document that `read_mapping` accepts; of lists the index is part of it."""
    keys: list[str | int | None] = []
    """The current index or name of each open collection; None: a name follows."""
    for event in yaml.parse(text, Loader=_LOADER):
        if isinstance(event, yaml.CollectionEndEvent):
            keys.pop()
            _advance(keys)
        elif isinstance(event, yaml.NodeEvent):
            if keys and keys[-1] is None:
                keys[-1] = event.value if isinstance(event, yaml.ScalarEvent) else ""
                yield tuple(map(str, keys)), _place(event)[0]
                continue
            if keys and isinstance(keys[-1], int):
                yield tuple(map(str, keys)), _place(event)[0]
            if isinstance(event, yaml.CollectionStartEvent):
                keys.append(0 if isinstance(event, yaml.SequenceStartEvent) else None)
            else:
                _advance(keys)


def _advance(keys: list[str | int | None]) -> None:
    """The value of the innermost collection has ended: another index, or a name, follows."""
    if keys:
        keys[-1] = keys[-1] + 1 if isinstance(keys[-1], int) else None


def _check_directives(text: str) -> None:
    # libyaml compares each %TAG with all earlier ones, which takes quadratic time.
    count = sum(text.count(f"{mark}%TAG") for mark in _LINE_BREAKS)
    if count > MAX_TAG_DIRECTIVES:
        raise InvalidInput(f"more than {MAX_TAG_DIRECTIVES} %TAG directives")


class _YamlReader:
    """Builds the values of one document, with the open collections on a stack."""

    def __init__(self, noun: str) -> None:
        self._noun = noun
        self._open: list[_OpenCollection] = []
        self._root: dict[str, Any] | None = None
        self._places: Places = {}

    def read(self, text: str) -> tuple[dict[str, Any], Places]:
        documents = 0
        for event in yaml.parse(text, Loader=_LOADER):
            if isinstance(event, yaml.DocumentStartEvent):
                documents += 1
                if documents > 1:
                    _refuse(event, f"a second document begins here; {self._noun} must be a single document")
            elif isinstance(event, yaml.CollectionEndEvent):
                self._open.pop()
            elif isinstance(event, yaml.NodeEvent):
                self._node(event)
        if self._root is None:
            raise InvalidInput(f"{self._noun} must be one mapping of names to values", line=1)
        return self._root, self._places

    def _node(self, event: yaml.NodeEvent) -> None:
        # Aliases of aliases can expand without limit.
        if event.anchor is not None:
            _refuse(event, "anchors and aliases are not allowed", "repeat the value instead")
        inside = self._open[-1] if self._open else None
        if inside is not None and isinstance(inside.values, dict) and inside.key is None:
            inside.key = self._name(event, inside.values)
            return
        values = _value(event)
        if inside is None:
            if not isinstance(values, dict):
                raise InvalidInput(f"{self._noun} must be one mapping of names to values", line=1)
            self._root = values
        elif isinstance(inside.values, list):
            inside.values.append(values)
        else:
            assert inside.key is not None
            inside.values[inside.key] = values
            inside.key = None
        if isinstance(event, yaml.CollectionStartEvent):
            if len(self._open) > MAX_NESTING:
                raise too_deep(*_place(event))
            self._open.append(_OpenCollection(values))

    def _name(self, event: yaml.NodeEvent, before: dict[str, Any]) -> str:
        if not isinstance(event, yaml.ScalarEvent):
            _refuse(event, "a name must be a text, not a list or a mapping")
        name: str = event.value
        if name in before:
            _refuse(event, f"{name!r} is given twice")
        if len(self._open) == 1:
            self._places[name] = _place(event)
        return name


def _value(event: yaml.NodeEvent) -> Any:
    """The value of a scalar, or an empty collection."""
    if isinstance(event, yaml.MappingStartEvent):
        _check_tag(event, frozenset({"map"}))
        return {}
    if isinstance(event, yaml.SequenceStartEvent):
        _check_tag(event, frozenset({"seq"}))
        return []
    assert isinstance(event, yaml.ScalarEvent)
    _check_tag(event, _SCALAR_TAGS)
    text: str = event.value
    if event.style or event.tag in ("!", f"{_CORE_TAG}str"):
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


def _check_tag(event: yaml.ScalarEvent | yaml.CollectionStartEvent, known: frozenset[str]) -> None:
    tag: str | None = event.tag
    if tag not in (None, "!") and tag.removeprefix(_CORE_TAG) not in known:
        _refuse(event, f"the tag {tag!r} is not allowed")


def _refuse(event: yaml.Event, message: str, hint: str = "") -> NoReturn:
    line, column = _place(event)
    raise InvalidInput(message, hint=hint, line=line, column=column)


def _place(event: yaml.Event) -> tuple[int, int]:
    """Line and column, from 1."""
    mark = event.start_mark
    assert mark is not None
    return mark.line + 1, mark.column + 1
