"""Converts plain values from JDL, YAML or JSON into values of job description fields."""

from __future__ import annotations

import math
import re
import shlex
from collections.abc import Callable
from typing import Any, Final

from pilotage.core.classads import Call, Expression, Literal, canonical, check_call, parse_expression
from pilotage.core.classads.parser import check_size
from pilotage.core.classads.tree import nodes_of
from pilotage.core.errors import InvalidInput, TooLarge
from pilotage.core.jobs.dependencies import parse_parent
from pilotage.core.jobs.description import COPY, OF_JOB, SHARED, URL, InputFile
from pilotage.core.jobs.durations import clock_seconds
from pilotage.core.jobs.fields import Field
from pilotage.core.jobs.job_outputs import job_output
from pilotage.core.jobs.parametric import PLACEHOLDER


class WrittenReal(float):
    """A real number that keeps its spelling: as an argument, `1.10` stays `1.10`."""

    text: str


def describe_value(value: Any) -> str:
    """The given value, for an error message."""
    if isinstance(value, bool):
        return str(value).lower()
    if value is None:
        return "empty"
    if isinstance(value, int | float):
        return f"the number {value}"
    if isinstance(value, str):
        return f"the text {value!r}" if len(value) <= 60 else f"the text {value[:57]!r}…"
    if isinstance(value, dict):
        return "a mapping"
    return "a list" if isinstance(value, list | tuple) else "an expression"


def type_error(field: Field, wanted: str, value: Any) -> InvalidInput:
    return InvalidInput(f"{field.name} must be {wanted}, not {describe_value(value)}", field=field.name)


def _text_of(field: Field, value: Any, wanted: str, key: str = "") -> str:
    """The value as a text. Numbers, true and false keep their spelling. `key`: its name in a mapping."""
    if isinstance(value, bool):
        text = str(value).lower()
    elif isinstance(value, WrittenReal):
        text = value.text
    elif isinstance(value, str | int | float):
        text = str(value)
    else:
        raise type_error(field, wanted, value)
    if "\x00" in text:
        raise InvalidInput(f"{field.name} contains a NUL character", field=field.name)
    try:
        text.encode()
    except UnicodeEncodeError:
        raise InvalidInput(
            f"{field.name} contains text that is not valid Unicode: {key + text!a:.200}",
            field=field.name,
        ) from None
    return text


def _text(field: Field, value: Any) -> str:
    if not isinstance(value, str | int | float) or isinstance(value, bool):
        raise type_error(field, "a text", value)
    text = _text_of(field, value, "a text")
    if "\n" in text or "\r" in text:
        raise InvalidInput(f"{field.name} must not contain line breaks", field=field.name)
    return text


def _program(field: Field, value: Any) -> str:
    """A text that is no number: `executable: 1` is a slip, and a program of such a name can be quoted."""
    if not isinstance(value, str):
        raise type_error(field, "a text", value)
    return _text(field, value)


def _texts(field: Field, value: Any, wanted: str) -> tuple[str, ...]:
    if not isinstance(value, list | tuple):
        raise type_error(field, wanted, value)
    return tuple(_text_of(field, item, f"{wanted} (of texts)") for item in value)


def _arguments(field: Field, value: Any) -> tuple[str, ...]:
    if isinstance(value, list | tuple):
        return _texts(field, value, "a list")
    text = _text_of(field, value, "a text or a list of texts")
    try:
        return tuple(shlex.split(text))
    except ValueError:
        raise InvalidInput(
            f"arguments: unclosed quote in {text!r}",
            hint="close the quote, or give a list of arguments",
            field=field.name,
        ) from None


_VARIABLE: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")


def _environment(field: Field, value: Any) -> tuple[tuple[str, str], ...]:
    if isinstance(value, dict):
        pairs = [
            (str(name), _text_of(field, item, "a mapping of texts", f"{name}="))
            for name, item in value.items()
        ]
    elif isinstance(value, str | list | tuple):
        items = (
            (value,) if isinstance(value, str) else _texts(field, value, "a mapping or a list of NAME=value")
        )
        pairs = []
        for item in items:
            name, equals, content = item.partition("=")
            if not equals:
                raise InvalidInput(f"environment: {item!r} must have the form NAME=value", field=field.name)
            pairs.append((name, content))
    else:
        raise type_error(field, "a mapping or a list of NAME=value", value)
    seen: set[str] = set()
    for name, _ in pairs:
        if not _VARIABLE.match(name):
            raise InvalidInput(f"environment: {name!r} is not a valid variable name", field=field.name)
        if name in seen:
            raise InvalidInput(f"environment: {name} is set twice", field=field.name)
        seen.add(name)
    return tuple(pairs)


def _lines(field: Field, value: Any) -> tuple[str, ...]:
    if isinstance(value, str):
        return tuple(line for line in value.splitlines() if line.strip())
    return _texts(field, value, "a text or a list of lines")


def _paths(field: Field, value: Any) -> tuple[str, ...]:
    items = (value,) if isinstance(value, str) else _texts(field, value, "a list of names or patterns")
    return tuple(dict.fromkeys(items))


def _names(field: Field, value: Any) -> tuple[str, ...]:
    """A set of names, in the given order; `ANY` or an empty text means no names."""
    items = value.split(",") if isinstance(value, str) else _texts(field, value, "a name or a list of names")
    names = tuple(dict.fromkeys(name for item in items if (name := item.strip())))
    if any(name.upper() == "ANY" for name in names):
        return ()
    if field.choices:
        return tuple(_one_of(field, name) for name in names)
    return names


def _parents(field: Field, value: Any) -> tuple[str, ...]:
    """Jobs and submissions, each once, in the given order.

    An empty text is refused: a script whose variable is empty would run its job at once.
    """
    if isinstance(value, int) and not isinstance(value, bool):
        value = str(value)
    items = value.split(",") if isinstance(value, str) else _texts(field, value, "a job or a list of jobs")
    names = tuple(dict.fromkeys(item.strip() for item in items))
    for name in names:
        parse_parent(name, field.name)
    return names


def _one_of(field: Field, text: str) -> str:
    for choice in field.choices:
        if choice.lower() == text.strip().lower():
            return choice
    wanted = field.choices[0] if len(field.choices) == 1 else f"one of {', '.join(field.choices)}"
    hint = dict(field.hints).get(text.strip().lower(), "")
    raise InvalidInput(
        f"{field.name} must be {wanted}, not {describe_value(text)}", hint=hint, field=field.name
    )


def _choice(field: Field, value: Any) -> str:
    return _one_of(field, _text(field, value))


def _boolean(field: Field, value: Any) -> bool:
    if isinstance(value, bool):
        return value
    if isinstance(value, str) and value.strip().lower() in ("true", "false", "yes", "no"):
        return value.strip().lower() in ("true", "yes")
    raise type_error(field, "true or false", value)


_INTEGER: Final = re.compile(r"\s*([+-]?\d{1,18})\s*\Z")


def _integer(field: Field, value: Any, wanted: str = "") -> int:
    if isinstance(value, str) and (digits := _INTEGER.match(value)):
        # The pattern also matches blanks that `int` does not strip.
        value = int(digits[1])
    wanted = wanted or f"a whole number from {field.low} to {field.high}"
    if not isinstance(value, int) or isinstance(value, bool) or not field.low <= value <= field.high:
        raise type_error(field, wanted, value)
    return value


_QUANTITY: Final = re.compile(r"\s*(\d{1,12}(?:\.\d{1,9})?)\s*([A-Za-z]+)\s*\Z")
_SECONDS: Final = {"s": 1, "min": 60, "h": 3600, "d": 86400}
_MEGABYTES: Final = {
    **dict.fromkeys(("m", "mb", "mib"), 1),
    **dict.fromkeys(("g", "gb", "gib"), 1024),
    **dict.fromkeys(("t", "tb", "tib"), 1024**2),
}


def _seconds(field: Field, value: Any) -> int:
    clock = clock_seconds(value) if isinstance(value, str) else None
    return _amount_of_time(field, value if clock is None else clock)


def _quantity(units: dict[str, int], wanted: str) -> Callable[[Field, Any], int]:
    def read(field: Field, value: Any) -> int:
        if isinstance(value, str) and (match := _QUANTITY.match(value)):
            unit = units.get(match[2].lower())
            if unit is None:
                raise type_error(field, wanted, value)
            # Round up: the job needs at least the given amount.
            value = math.ceil(float(match[1]) * unit)
        return _integer(field, value, wanted)

    return read


_amount_of_time: Final = _quantity(
    _SECONDS, "a number of seconds, or a time such as 30 min, 2 h, 1:30:00 or 1-12"
)


def _expression(field: Field, value: Any) -> str:
    """The canonical text of an expression; "" for an empty text."""
    if isinstance(value, str) and not value.strip():
        return ""
    if isinstance(value, str | bool):
        try:
            value = parse_expression(value if isinstance(value, str) else str(value).lower())
        except InvalidInput as error:
            place = f"line {error.line}, column {error.column} of the expression" if error.line else ""
            message = f"{field.name}: {error.message}{f' ({place})' if place else ''}"
            raise InvalidInput(message, hint=error.hint, field=field.name) from error
    if not isinstance(value, Expression):
        raise type_error(field, "a ClassAd expression", value)
    check_size(value)
    _check_constants(field, value)
    text = canonical(value)
    try:
        # The stored text is parsed again for matching, and must not fail there.
        parse_expression(text)
    except InvalidInput as error:
        raise TooLarge(f"{field.name}: in canonical form, {error.message}", field=field.name) from error
    return text


def _check_constants(field: Field, tree: Expression) -> None:
    """Refuses placeholders in strings, and invalid patterns."""
    # Outside of strings, `%` is the remainder operator, as in `a %n`.
    for node in nodes_of(tree):
        if isinstance(node, Literal) and isinstance(node.value, str) and PLACEHOLDER.search(node.value):
            raise placeholder_error(field, node.value)
        if isinstance(node, Call):
            _check_patterns(field, node)


def _check_patterns(field: Field, call: Call) -> None:
    try:
        check_call(call)
    except InvalidInput as error:
        raise InvalidInput(f"{field.name}: {error.message}", hint=error.hint, field=field.name) from error


def placeholder_error(field: Field, text: str) -> InvalidInput:
    return InvalidInput(
        f"{field.name}: a placeholder is not allowed here: {text!r}",
        hint="this field selects the task queue, so it must be the same for all jobs of a submission",
        field=field.name,
    )


def _inputs(field: Field, value: Any) -> tuple[InputFile, ...]:
    items = value if isinstance(value, list | tuple) else (value,)
    return tuple(_input(field, item) for item in items if item != "")


def _input(field: Field, item: Any) -> InputFile:
    if isinstance(item, str):
        return _input_file(field, item.strip())
    if not isinstance(item, dict):
        raise type_error(field, "a list of paths, URLs or mappings", item)
    unknown = set(item) - {"path", "mode", "url", "name", "executable"}
    if unknown:
        raise InvalidInput(
            f"input_sandbox: unknown key {sorted(map(str, unknown))[0]!r}",
            hint="known: path, mode, url, name, executable",
            field=field.name,
        )
    source = item.get("url", item.get("path"))
    if not isinstance(source, str) or ("url" in item) == ("path" in item):
        raise InvalidInput("input_sandbox: each item needs either path or url", field=field.name)
    mode = item.get("mode", URL if "url" in item else None)
    allowed = (URL,) if "url" in item else (COPY, SHARED, OF_JOB, None)
    if mode not in allowed:
        raise InvalidInput(
            f"input_sandbox: mode {mode!r} does not match the item",
            hint="path: copy, shared or job; url: url",
            field=field.name,
        )
    name, executable = item.get("name", ""), item.get("executable", False)
    if not isinstance(name, str) or not isinstance(executable, bool):
        raise InvalidInput(
            "input_sandbox: name must be a text, and executable true or false", field=field.name
        )
    return _input_file(field, source, mode, name, executable)


_SCHEME: Final = re.compile(r"(https?|file)://.", re.IGNORECASE)


def _input_file(
    field: Field, source: str, mode: str | None = None, name: str = "", executable: bool = False
) -> InputFile:
    if source[:4].upper() == "LFN:" or source[:3].upper() == "SB:":
        raise InvalidInput(
            f"input_sandbox: {source!r} is not supported yet: no data would be transferred", field=field.name
        )
    if mode is None and source.startswith("shared:"):
        mode, source = SHARED, source.removeprefix("shared:")
    elif mode is None and source.startswith("job:"):
        mode, source = OF_JOB, source.removeprefix("job:")
        source, _, given = source.partition("=")
        name = name or given.strip()
    elif mode is None and _SCHEME.match(source):
        mode = URL
    mode = mode or COPY
    if mode == OF_JOB and (PLACEHOLDER.search(source) or not job_output(source).path):
        raise InvalidInput(
            f"input_sandbox: {source!r} is not an output of a job",
            hint="write job:12/result.json=in.json, the same for all jobs of the submission",
            field=field.name,
        )
    if mode == URL and not _SCHEME.match(source):
        raise InvalidInput(f"input_sandbox: {source!r} is not an http, https or file URL", field=field.name)
    if mode == SHARED and not source.startswith("/"):
        raise InvalidInput(f"input_sandbox: the shared path {source!r} must be absolute", field=field.name)
    if "\x00" in source or not source.strip("/."):
        raise InvalidInput(f"input_sandbox: {source!r} is not the name of a file", field=field.name)
    last = re.split(r"[?#]", source)[0] if mode == URL else source
    return InputFile(name or last.rstrip("/").rpartition("/")[2], mode, source, executable)


READERS: Final[dict[str, Callable[[Field, Any], Any]]] = {
    "text": _text,
    "program": _program,
    "arguments": _arguments,
    "environment": _environment,
    "lines": _lines,
    "paths": _paths,
    "names": _names,
    "parents": _parents,
    "choice": _choice,
    "boolean": _boolean,
    "integer": _integer,
    "seconds": _seconds,
    "megabytes": _quantity(_MEGABYTES, "a number of megabytes, or an amount such as 500 MB or 2 GB"),
    "expression": _expression,
    "inputs": _inputs,
}
