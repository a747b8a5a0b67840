"""YAML into plain values, event by event.

The events come from libyaml, whose parser keeps a stack of its own. Composing them into a tree, as `yaml.compose`
does, calls itself in C for each level: 50,000 brackets end the process.
"""

from __future__ import annotations

import re
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
class _Open:
    """A collection that is being read. `key` is the name that waits for its value."""

    values: dict[str, Any] | list[Any]
    key: str | None = None


Places: TypeAlias = dict[str, tuple[int, int]]
"""Line and column of each name, from 1."""


def read_mapping(text: str) -> tuple[dict[str, Any], Places]:
    """The mapping that a document is, and where its names stand; `InvalidInput` with the place for all else."""
    _check_directives(text)
    try:
        return _Reader().read(text)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line, column = (mark.line + 1, mark.column + 1) if mark else (None, None)
        raise InvalidInput(f"not YAML: {error.problem or error.context}", line=line, column=column) from error
    except (yaml.YAMLError, UnicodeEncodeError) as error:
        raise InvalidInput("not YAML that can be read: it has characters that are not allowed") from error


def _check_directives(text: str) -> None:
    # libyaml compares each %TAG with all before it.
    count = sum(text.count(f"{mark}%TAG") for mark in _LINE_BREAKS)
    if count > MAX_TAG_DIRECTIVES:
        raise InvalidInput(f"more than {MAX_TAG_DIRECTIVES} %TAG directives")


class _Reader:
    """Builds the values of one document; collections that are open stand on a stack."""

    def __init__(self) -> None:
        self._open: list[_Open] = []
        self._root: dict[str, Any] | None = None
        self._places: Places = {}

    def read(self, text: str) -> tuple[dict[str, Any], Places]:
        documents = 0
        for event in yaml.parse(text, Loader=_LOADER):
            if isinstance(event, yaml.DocumentStartEvent):
                documents += 1
                if documents > 1:
                    _refuse(event, "a second document begins here: a job description is one")
            elif isinstance(event, yaml.CollectionEndEvent):
                self._open.pop()
            elif isinstance(event, yaml.NodeEvent):
                self._node(event)
        if self._root is None:
            raise InvalidInput("a job description is one mapping of names and values", line=1)
        return self._root, self._places

    def _node(self, event: yaml.NodeEvent) -> None:
        # Aliases of aliases can grow without end.
        if event.anchor is not None:
            _refuse(event, "anchors and aliases are not accepted here", "write the value out")
        inside = self._open[-1] if self._open else None
        if inside is not None and isinstance(inside.values, dict) and inside.key is None:
            inside.key = self._name(event, inside.values)
            return
        values = _value(event)
        if inside is None:
            if not isinstance(values, dict):
                raise InvalidInput("a job description is one mapping of names and values", line=1)
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
            self._open.append(_Open(values))

    def _name(self, event: yaml.NodeEvent, before: dict[str, Any]) -> str:
        if not isinstance(event, yaml.ScalarEvent):
            _refuse(event, "a name must be a text")
        name: str = event.value
        if name in before:
            _refuse(event, f"{name!r} is given twice")
        if len(self._open) == 1:
            self._places[name] = _place(event)
        return name


def _value(event: yaml.NodeEvent) -> Any:
    """A scalar's value, or an empty collection."""
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
        _refuse(event, f"the tag {tag!r} is not accepted here")


def _refuse(event: yaml.Event, message: str, hint: str = "") -> NoReturn:
    line, column = _place(event)
    raise InvalidInput(message, hint=hint, line=line, column=column)


def _place(event: yaml.Event) -> tuple[int, int]:
    """Line and column, from 1."""
    mark = event.start_mark
    assert mark is not None
    return mark.line + 1, mark.column + 1
