"""Lines of the keys of a TOML text, and limits on its nesting.

tomllib reports no positions and has no limits: it recurses for each bracket, and its time grows with the square of
the parts of a dotted key. So the text is scanned here first, once and token by token.
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
"""The full path of a table or key, and its line."""


def check_shape(text: str, document: str = "the policy") -> None:
    """Raises `TooLarge` for a text that is too long, nested too deeply, or has keys with too many parts."""
    if len(text) > MAX_TEXT:
        raise TooLarge(f"{document} exceeds {MAX_TEXT:,} characters")
    for _ in statement_lines(text):
        pass


def line_of(text: str, keys: Sequence[str]) -> int | None:
    """The line of `keys`, else of the nearest table above; None if even the first key is missing.

    An entry of an array of tables has its index as key: "0", "1" and so on.
    """
    lines: dict[tuple[str, ...], int] = {}
    for path, line in statement_lines(text):
        for length in range(len(path), 0, -1):
            lines.setdefault(path[:length], line)
    for length in range(len(keys), 0, -1):
        nearest = lines.get(tuple(keys[:length]))
        if nearest is not None:
            return nearest
    return None


def statement_lines(text: str) -> Iterator[Statement]:
    """Paths and lines of tables and keys in the order of the text. Tables of an array have their index as last part."""
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
    """Yields (key, line, brackets) of each statement.

    `brackets` is 0 for a key, 1 for a table, and 2 for a table of an array.
    """

    def __init__(self, text: str) -> None:
        self._text = text
        self._line = 1
        self._depth = 0
        """Nesting of lists and inline tables in the current value."""
        self._dots = 0
        """Dots in the current dotted key."""

    def __iter__(self) -> Iterator[tuple[tuple[str, ...], int, int]]:
        parts: list[str] = []
        brackets, in_value = 0, False
        for match in _TOKEN.finditer(self._text):
            kind, token = match.lastgroup, match[0]
            line = self._line
            self._line += token.count("\n")
            if kind in ("blank", "comment"):
                continue
            self._check_limits(kind, token)
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
                # The header has ended, even if its brackets are not closed.
                self._depth = 0
            elif kind in ("bare", "text"):
                parts.append(token.strip("\"'") if kind == "text" else token)

    def _check_limits(self, kind: str | None, token: str) -> None:
        if token == ".":
            self._dots += 1
            if self._dots >= MAX_KEY_PARTS:
                raise TooLarge(f"a key has more than {MAX_KEY_PARTS} parts", line=self._line)
        elif kind == "mark":
            self._dots = 0
            if token in "[{":
                self._depth += 1
                if self._depth > MAX_NESTING:
                    raise too_deep(self._line)
            elif token in "]}":
                self._depth = max(0, self._depth - 1)
