"""Writes values and keys in TOML syntax."""

from __future__ import annotations

import re
from collections.abc import Iterable


def quoted(text: str) -> str:
    """A basic string; special characters are escaped."""
    return '"' + "".join(_escaped(char) for char in text) + '"'


def _escaped(char: str) -> str:
    if char in '"\\':
        return "\\" + char
    if char < " " or char == "\x7f":
        return f"\\u{ord(char):04x}"
    return char


def key(name: str) -> str:
    """The name as a bare key if TOML allows that, else quoted."""
    return name if re.fullmatch(r"[A-Za-z0-9_-]+", name) else quoted(name)


def table(*names: str) -> str:
    """The header of a table."""
    return "[" + ".".join(key(name) for name in names) + "]"


def number(value: float) -> str:
    return str(int(value)) if value.is_integer() and abs(value) < 1e15 else repr(value)


def texts(values: Iterable[str]) -> str:
    return "[" + ", ".join(quoted(value) for value in values) + "]"


def comment(text: str) -> str:
    """`text` as a comment; characters that TOML does not allow there become blanks."""
    shown = "".join(char if char.isprintable() else " " for char in text)
    return f"# {shown}".rstrip()
