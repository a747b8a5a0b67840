"""Sets keys in the text of a policy. Comments, order and all other keys stay."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from copy import deepcopy
from typing import Any

from pilotage.core.errors import Conflict
from pilotage.core.key_lines import statement_lines
from pilotage.core.policy import toml

Path = tuple[str, ...]
Value = str | float
"""A text or a number."""


def with_values(text: str, values: Mapping[Path, Value]) -> str:
    """The text with these keys set. `text` is valid TOML. Raises `Conflict` if its layout leaves no place for one."""
    for path, value in reversed(list(values.items())):  # each goes below the header of its table
        tables = tomllib.loads(text)
        if value_at(tables, path) != value:
            text = _with_value(text, tables, path, value)
    return text


def with_tables(text: str, paths: Sequence[Path]) -> str:
    """The text, valid TOML, with these empty tables at its end. Raises `Conflict` if one has no place there."""
    headers = "\n".join(toml.table(*path) for path in paths)
    changed = f"{text.rstrip()}\n\n{headers}\n".lstrip("\n")
    wanted = tomllib.loads(text)
    try:
        for path in paths:
            inner = wanted
            for name in path[:-1]:
                inner = inner.setdefault(name, {})
            inner.setdefault(path[-1], {})
        if tomllib.loads(changed) == wanted:
            return changed
    except (tomllib.TOMLDecodeError, AttributeError):
        pass
    raise Conflict("the tables cannot be added to this text", hint=f"add them by hand:\n{headers}")


def value_at(tables: Any, path: Path) -> Any:
    """The value of a key; None: there is none."""
    for name in path:
        tables = tables.get(name) if isinstance(tables, dict) else None
    return tables


def written(value: Value) -> str:
    """A value in TOML syntax."""
    return toml.quoted(value) if isinstance(value, str) else toml.number(float(value))


def _with_value(text: str, tables: dict[str, Any], path: Path, value: Value) -> str:
    wanted = deepcopy(tables)
    table: Any = wanted
    for name in path[:-1]:
        table = table.setdefault(name, {}) if isinstance(table, dict) else {}
    if isinstance(table, dict):
        table[path[-1]] = value
    for candidate in _candidates(text, path, written(value)):
        try:
            if tomllib.loads(candidate) == wanted:
                return candidate
        except tomllib.TOMLDecodeError:
            continue
    name = ".".join(path)
    raise Conflict(f"{name} cannot be set in this text", hint=f"set {name} = {written(value)} by hand")


def _candidates(text: str, path: Path, value: str) -> Iterator[str]:
    """Texts of which one has the value at its place; which one it is depends on how the table is written."""
    table, name = path[:-1], toml.key(path[-1])
    lines = text.split("\n")
    for keys, number in statement_lines(text):
        before, line, after = lines[: number - 1], lines[number - 1], lines[number:]
        if keys == path:
            yield _joined(
                before, [re.sub(r"=\s*(\"[^\"]*\"|'[^']*'|[^\s#]+)", f"= {value}", line, count=1)], after
            )
        elif keys == table:
            yield _joined(before, [line, f"{name} = {value}"], after)
            inline = rf"(?<![\w-])[\"']?{re.escape(path[-1])}[\"']?\s*=\s*(\"[^\"]*\"|'[^']*'|[^\s,}}]+)"
            yield _joined(before, [re.sub(inline, lambda _: f"{name} = {value}", line, count=1)], after)
            for following in (", ", " "):
                yield _joined(before, [line.replace("{", f"{{ {name} = {value}{following}", 1)], after)
        elif keys[: len(table)] == table:
            yield _joined(before, [f"{'.'.join(map(toml.key, path))} = {value}", line], after)
    end = "" if text.endswith("\n") or not text else "\n"
    yield f"{text}{end}\n{toml.table(*table)}\n{name} = {value}\n"


def _joined(*parts: Sequence[str]) -> str:
    return "\n".join(line for part in parts for line in part)
