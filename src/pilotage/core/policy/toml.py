"""Values and keys as TOML writes them."""

from __future__ import annotations

import re
from collections.abc import Iterable


def quoted(text: str) -> str:
    """A basic string, whatever its letters."""
    return '"' + "".join(_escaped(letter) for letter in text) + '"'


def _escaped(letter: str) -> str:
    if letter in '"\\':
        return "\\" + letter
    if letter < " " or letter == "\x7f":
        return f"\\u{ord(letter):04x}"
    return letter


def key(name: str) -> str:
    """`name` bare where that is allowed."""
    return name if re.fullmatch(r"[A-Za-z0-9_-]+", name) else quoted(name)


def table(*names: str) -> str:
    """The head of a table."""
    return "[" + ".".join(key(name) for name in names) + "]"


def number(value: float) -> str:
    return str(int(value)) if value.is_integer() and abs(value) < 1e15 else repr(value)


def texts(values: Iterable[str]) -> str:
    return "[" + ", ".join(quoted(value) for value in values) + "]"


def comment(text: str) -> str:
    """`text` as comment lines, without the letters that TOML does not allow there."""
    shown = "".join(letter if letter.isprintable() else " " for letter in text)
    return f"# {shown}".rstrip()
