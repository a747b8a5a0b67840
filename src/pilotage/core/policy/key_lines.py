"""Where the keys of a TOML text stand, and how deep it nests: tomllib tells no places, and has no bounds.

The text is gone through once, token by token; tomllib calls itself for each bracket, and takes time with the square
of the parts of a dotted key.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Final

from pilotage.core.errors import TooLarge
from pilotage.core.nesting import MAX_NESTING, too_deep

MAX_TEXT: Final = 2 * 1024 * 1024
MAX_KEY_PARTS: Final = 20

_TOKEN: Final = re.compile(
    r'''(?P<text>"""(?:[^"\\]++|\\.|"(?!""))*+(?:"{3,5})?
               |\'\'\'(?:[^']++|'(?!''))*+(?:'{3,5})?
               |"(?:[^"\\\n]++|\\.)*+"?
               |'[^'\n]*+'?)
    | (?P<comment>\#[^\n]*+)
    | (?P<blank>[ \t\r]++)
    | (?P<mark>[\n\[\]{}=.,])
    | (?P<bare>[^\s\#"'\[\]{}=.,]++|.)''',
    re.DOTALL | re.VERBOSE,
)

Statement = tuple[tuple[str, ...], int]
"""The whole path of a table or of a key with its value, and its line."""


def check_shape(text: str) -> None:
    """Raises `TooLarge` for a text that is too long, nests too deep, or has keys of too many parts."""
    if len(text) > MAX_TEXT:
        raise TooLarge(f"the policy is longer than {MAX_TEXT:,} characters")
    for _ in _statements(text):
        pass


def line_of(text: str, keys: Sequence[str]) -> int | None:
    """Where `keys` stand, or the nearest table above them; None if not even the first of them is there.

    The place of an entry in an array of tables is a key: "0", "1" and so on.
    """
    lines: dict[tuple[str, ...], int] = {}
    for path, line in _statements(text):
        for length in range(len(path), 0, -1):
            lines.setdefault(path[:length], line)
    for length in range(len(keys), 0, -1):
        found = lines.get(tuple(keys[:length]))
        if found is not None:
            return found
    return None


def _statements(text: str) -> Iterator[Statement]:
    """Tables and keys in the order of the text, with the number of the entry for tables of an array."""
    table: tuple[str, ...] = ()
    entries: Counter[tuple[str, ...]] = Counter()
    for parts, line, brackets in _Scanner(text):
        if brackets == 0:
            yield table + parts, line
            continue
        table = parts
        if brackets == 2:
            table += (str(entries[parts]),)
            entries[parts] += 1
        yield table, line


class _Scanner:
    """Yields the key of each statement, its line, and the brackets before it: none, 1 of a table, 2 of an array's."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._line = 1
        self._depth = 0
        """Of lists and inline tables in a value."""
        self._points = 0
        """Since the last token that is no part of a dotted key."""

    def __iter__(self) -> Iterator[tuple[tuple[str, ...], int, int]]:
        parts: list[str] = []
        brackets, in_value = 0, False
        for found in _TOKEN.finditer(self._text):
            kind, token = found.lastgroup, found[0]
            line = self._line
            self._line += token.count("\n")
            if kind in ("blank", "comment"):
                continue
            self._bound(kind, token)
            if token == "\n":
                if in_value and self._depth:
                    continue
                parts, brackets, in_value = [], 0, False
                self._depth = 0
            elif in_value:
                continue
            elif token == "[" and not parts:
                brackets += 1
            elif token == "=" or (token == "]" and brackets):
                if parts:
                    yield tuple(parts), line, min(brackets, 2) if token == "]" else 0
                in_value = True
                # The brackets of a header are closed by now, or never will be.
                self._depth = 0
            elif kind in ("bare", "text"):
                parts.append(token.strip("\"'") if kind == "text" else token)

    def _bound(self, kind: str | None, token: str) -> None:
        if token == ".":
            self._points += 1
            if self._points >= MAX_KEY_PARTS:
                raise TooLarge(f"a key has more than {MAX_KEY_PARTS} parts", line=self._line)
        elif kind == "mark":
            self._points = 0
            if token in "[{":
                self._depth += 1
                if self._depth > MAX_NESTING:
                    raise too_deep(self._line)
            elif token in "]}":
                self._depth = max(0, self._depth - 1)
