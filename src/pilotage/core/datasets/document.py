"""Reads a TOML, YAML or JSON text into plain values, and finds the lines of its parts.

The parsers of the libraries report no lines. So the text is read a second time once mistakes are known; a text without
mistakes is read once.
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final

from pilotage.core.errors import InvalidInput, TooLarge
from pilotage.core.jobs.parsers import read_json
from pilotage.core.jobs.yaml_reader import paths_with_lines, read_mapping

MAX_TEXT: Final = 16 * 1024 * 1024
"""Characters of a text."""

Path = tuple[str, ...]
"""The keys that lead to a part of a document; of lists the index."""


def read_document(text: str, kind: str, noun: str) -> dict[str, Any]:
    """The mapping of a text of kind `toml`, `yaml` or `json`. `noun` names the document in errors."""
    check_length(text, noun)
    readers: Mapping[str, Callable[[str, str], dict[str, Any]]] = {
        "toml": _read_toml,
        "yaml": lambda text, noun: read_mapping(text, noun)[0],
        "json": _read_json_mapping,
    }
    if kind not in readers:
        raise InvalidInput(f"unknown format of {noun}: {kind!r}", hint="use toml, yaml or json")
    return readers[kind](text, noun)


def check_length(text: str, noun: str) -> None:
    if len(text) > MAX_TEXT:
        raise TooLarge(f"{noun} exceeds {MAX_TEXT:,} characters")


def lines_of(text: str, kind: str, paths: Iterable[Path]) -> dict[Path, int]:
    """The line of each path, or of the nearest part above it. The text was read without error."""
    scan = {"toml": _toml_lines, "yaml": paths_with_lines, "json": _json_lines}[kind]
    wanted = set(paths)
    above = {path[:length] for path in wanted for length in range(len(path) + 1)}
    lines: dict[Path, int] = {}
    for path, line in scan(text):
        if path in above:
            lines.setdefault(path, line)
    nearest_lines = {}
    for path in wanted:
        nearest = next((path[:length] for length in range(len(path), 0, -1) if path[:length] in lines), None)
        if nearest is not None:
            nearest_lines[path] = lines[nearest]
    return nearest_lines


# --- JSON


def _read_json_mapping(text: str, noun: str) -> dict[str, Any]:
    value = read_json(text)
    if not isinstance(value, dict):
        raise InvalidInput(f"{noun} must be one JSON object")
    return value


_JSON_TOKEN: Final = re.compile(r'"(?:[^"\\]|\\.)*+"|[\[\]{}:,\n]|[^\s\[\]{}:,"]+', re.DOTALL)


def _json_lines(text: str) -> Iterator[tuple[Path, int]]:
    """The paths of a JSON text and their lines."""
    keys: list[str | int] = []
    line, name = 1, ""
    for match in _JSON_TOKEN.finditer(text):
        token = match[0]
        if token == "\n":
            line += 1
        elif token in ("]", "}"):
            keys.pop()
        elif token == ",":
            if keys and isinstance(keys[-1], int):
                keys[-1] += 1
        elif token == ":":
            keys[-1] = json.loads(name)
            yield tuple(map(str, keys)), line
        else:
            if keys and isinstance(keys[-1], int):
                yield tuple(map(str, keys)), line
            if token in ("[", "{"):
                keys.append(0 if token == "[" else "")
            else:
                name = token


# --- TOML


def _toml_lines(text: str) -> Iterator[tuple[Path, int]]:
    # Imported here: every command imports this module, and the policy takes as long as all the rest.
    from pilotage.core.key_lines import statement_lines

    return statement_lines(text)


def _read_toml(text: str, noun: str) -> dict[str, Any]:
    for _ in _toml_lines(text):
        pass  # Checks the nesting.
    try:
        text.encode()
        return tomllib.loads(text)
    except UnicodeEncodeError:
        raise InvalidInput(f"{noun} is not valid TOML: it contains lone surrogates") from None
    except tomllib.TOMLDecodeError as error:
        place = re.search(r"line (\d+), column (\d+)", str(error))
        # Without a position the error is at the end of the document.
        line, column = (int(place[1]), int(place[2])) if place else (text.count("\n") + 1, None)
        reason = re.sub(r" \(at .*\)", "", str(error))
        raise InvalidInput(f"{noun} is not valid TOML: {reason}", line=line, column=column) from None
    except (RecursionError, ValueError):
        raise InvalidInput(f"{noun} is not valid TOML: a number is too long") from None
