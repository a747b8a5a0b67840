"""Text of a ClassAd into tokens that know their place."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, NoReturn

from pilotage.core.classads.tree import INT_MAX
from pilotage.core.errors import InvalidInput

RESERVED: Final = frozenset({"true", "false", "undefined", "error", "is", "isnt"})

_SPACE = re.compile(r"[ \t\r\n\f\v]+|//[^\n]*|/\*.*?\*/", re.DOTALL)
_NUMBER = re.compile(r"\d+\.\d+(?:[eE][+-]?\d+)?|\.\d+(?:[eE][+-]?\d+)?|\d+[eE][+-]?\d+|\d+")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_OPERATOR = re.compile(r">>>|=\?=|=!=|\|\||&&|==|!=|<=|>=|<<|>>|[|^&<>+\-*/%!~?:.=\[\](){},;]")
_PLAIN = {
    '"': re.compile(r'[^"\\\n\x00]*'),
    "'": re.compile(r"[^'\\\n\x00]*"),
}
_LINE_END = re.compile("\n")
_OCTAL = re.compile(r"[0-3][0-7]{2}|[0-7]{1,2}")
_ESCAPES = {"b": "\b", "t": "\t", "n": "\n", "f": "\f", "r": "\r"}

# One more than the largest integer: legal only right after a minus.
MOST_NEGATIVE: Final = INT_MAX + 1


@dataclass(frozen=True, slots=True)
class Token:
    """`kind` is `name`, `number`, `string`, `end`, or the operator itself."""

    kind: str
    text: str
    value: int | float | str
    start: int


class Source:
    """A text and the places in it."""

    __slots__ = ("_starts", "text")

    def __init__(self, text: str) -> None:
        self.text = text
        self._starts: list[int] = []
        """Where the lines begin, once anybody has asked for a place."""

    def place(self, offset: int) -> tuple[int, int]:
        """Line and column of an offset, from 1."""
        if not self._starts:
            self._starts = [0, *(line_end.end() for line_end in _LINE_END.finditer(self.text))]
        line = bisect_right(self._starts, offset)
        return line, offset - self._starts[line - 1] + 1

    def refuse(self, message: str, offset: int, hint: str = "") -> NoReturn:
        line, column = self.place(offset)
        raise InvalidInput(message, hint=hint, line=line, column=column)


def tokens(source: Source) -> Iterator[Token]:
    """The tokens of a text, the last of kind `end`; raises `InvalidInput` at the first that is none."""
    text = source.text
    at = 0
    while True:
        at = _skip_space(source, at)
        if at >= len(text):
            yield Token("end", "", "", at)
            return
        token, at = _next(source, at)
        yield token


def _skip_space(source: Source, at: int) -> int:
    # A loop and not one possessive group: Python before 3.11.5 takes the begin of a last, failed round for a match.
    while (match := _SPACE.match(source.text, at)) is not None:
        at = match.end()
    if source.text.startswith("/*", at):
        source.refuse("this comment is never closed", at, "end it with */")
    return at


def _next(source: Source, at: int) -> tuple[Token, int]:
    text = source.text
    start = text[at]
    if start in "\"'":
        return _quoted(source, at)
    if match := _NAME.match(text, at):
        return Token("name", match[0], match[0], at), match.end()
    if match := _NUMBER.match(text, at):
        return _number(source, match[0], at), match.end()
    if match := _OPERATOR.match(text, at):
        return Token(match[0], match[0], match[0], at), match.end()
    return source.refuse(f"{start!r} has no meaning here", at, "quote text with double quotes")


def _number(source: Source, text: str, at: int) -> Token:
    following = source.text[at + len(text) : at + len(text) + 1]
    if following and (following.isalnum() or following in "_."):
        source.refuse(
            f"{text + following!r} is not a number", at, "decimal integers and reals only; quote text"
        )
    if text.isdigit():
        if len(text) > 1 and text[0] == "0":
            source.refuse(f"integer {text!r} has leading zeros", at)
        value = int(text) if len(text) < 20 else MOST_NEGATIVE + 1
        if value > MOST_NEGATIVE:
            source.refuse(f"integer {text} does not fit 64 bits", at)
        return Token("number", text, value, at)
    real = float(text)
    if real == float("inf"):
        source.refuse(f"{text} is too large for a real", at)
    return Token("number", text, real, at)


def _quoted(source: Source, start: int) -> tuple[Token, int]:
    text = source.text
    quote = text[start]
    what = "string" if quote == '"' else "quoted name"
    parts: list[str] = []
    at = start + 1
    while True:
        match = _PLAIN[quote].match(text, at)
        assert match is not None
        parts.append(match[0])
        at = match.end()
        if text[at : at + 1] == quote:
            break
        if text[at : at + 1] != "\\" or at + 1 >= len(text):
            source.refuse(f"this {what} is never closed", start, f"end it with {quote} on the same line")
        part, at = _escape(source, at)
        parts.append(part)
    content = "".join(parts)
    if quote == "'" and not content:
        source.refuse("a quoted name may not be empty", start)
    kind = "string" if quote == '"' else "name"
    return Token(kind, text[start : at + 1], content, start), at + 1


def _escape(source: Source, at: int) -> tuple[str, int]:
    text = source.text
    if match := _OCTAL.match(text, at + 1):
        code = int(match[0], 8)
        if not 0 < code < 128:
            source.refuse(f"\\{match[0]} is not an ASCII character", at, "write the character itself")
        return chr(code), match.end()
    letter = text[at + 1]
    if letter in "\n\x00":
        source.refuse("a backslash cannot stand before the end of a line", at)
    return _ESCAPES.get(letter, letter), at + 2
