"""Patterns of `regexp`: the language of RE2, which matches in linear time for every pattern."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, Protocol

import re2

from pilotage.core.errors import InvalidInput

MAX_PATTERN: Final = 4096
MAX_SUBJECT: Final = 64 * 1024
# Of one compiled pattern, states of its automaton included; bytes.
MAX_MEMORY: Final = 256 * 1024


class PatternMatch(Protocol):
    """A match of a pattern in bytes, as the module `re` has it."""

    def span(self) -> tuple[int, int]: ...

    def end(self) -> int: ...

    def group(self, number: int) -> bytes | None: ...

    def groups(self) -> Sequence[bytes | None]: ...


@dataclass(frozen=True, slots=True)
class Pattern:
    """A compiled pattern. `instructions` are the cost per byte searched, at worst.

    `search(subject, start)` finds the first match from a place on; None: there is none.
    """

    instructions: int
    search: Callable[[bytes, int], PatternMatch | None]


@lru_cache(maxsize=128)
def compiled(text: str, options: str = "") -> Pattern | str:
    """The pattern, or the reason why it is refused.

    Of `options` the letters i, m, s and x count, in either case; any other is ignored, as HTCondor does.
    """
    if len(text) > MAX_PATTERN:
        return f"it is longer than {MAX_PATTERN} characters"
    flags = "".join(letter for letter in "ims" if letter in options.lower())
    plain = without_spacing(text) if "x" in options.lower() else text
    settings = re2.Options()
    settings.log_errors = False
    settings.max_mem = MAX_MEMORY
    try:
        pattern = re2.compile(f"(?{flags}){plain}" if flags else plain, settings)
    except re2.error as error:
        return unsupported(text) or _reason(error)
    except UnicodeEncodeError:
        return "it is not valid Unicode"
    return Pattern(pattern.programsize, pattern.search)


def check_pattern(function: str, text: str, options: str = "") -> None:
    """Raises `InvalidInput` with the reason for a pattern that a function can't use."""
    expression = compiled(text, options)
    if isinstance(expression, str):
        shown = text if len(text) <= 60 else f"{text[:57]}…"
        raise InvalidInput(
            f"{function}: the pattern {shown!r} can't be used: {expression}",
            hint="patterns are those of RE2: docs/reference/classads.md names the differences",
        )


def _reason(error: Exception) -> str:
    """RE2's own words; its errors carry bytes."""
    detail = error.args[0] if error.args else ""
    words = detail.decode("utf-8", "replace") if isinstance(detail, bytes) else str(detail)
    if "too large" in words or "repetition size" in words:
        return f"it is too large once its repetitions are written out ({words})"
    return words


_TOKEN: Final = re.compile(
    r"""(?P<escape>\\(?:Q.*?(?:\\E|\Z)|.|\Z))
    | (?P<class>\[\^?\]?(?:\\.|\[:\^?[a-z]+:\]|[^\]\\])*+\]?)
    | (?P<group>\((?:\?(?:<[=!]|P[=>]|[=!>|\#&(R+\-\d])|\*[A-Z]))
    | (?P<possessive>(?:[*+?]|\{\d+(?:,\d*)?\})\+)
    | (?P<other>.)""",
    re.DOTALL | re.VERBOSE,
)
_GROUPS: Final = {
    "(?=": "lookahead (?=…)",
    "(?!": "negative lookahead (?!…)",
    "(?<=": "lookbehind (?<=…)",
    "(?<!": "negative lookbehind (?<!…)",
    "(?>": "an atomic group (?>…)",
    "(?|": "a branch reset (?|…)",
    "(?#": "a comment (?#…)",
    "(?(": "a conditional (?(…)…)",
    "(?P=": "a backreference (?P=…)",
}
_ESCAPES: Final = {
    **{str(digit): f"a backreference \\{digit}" for digit in range(1, 10)},
    "k": "a backreference \\k",
    "g": "a backreference \\g",
    "K": "\\K",
    "G": "\\G",
    "Z": "\\Z: write \\z, or $",
    "R": "\\R",
    "X": "\\X",
    "h": "\\h: write [ \\t]",
    "H": "\\H",
    "N": "\\N",
}


def unsupported(text: str) -> str | None:
    """The first feature of PCRE in a pattern that RE2 does not have, None if there is none."""
    for token in _TOKEN.finditer(text):
        kind, token_text = token.lastgroup, token[0]
        if kind == "group":
            feature = _GROUPS.get(token_text) or (
                f"the verb {token_text}…)" if token_text.startswith("(*") else "recursion into a group"
            )
        elif kind == "possessive":
            feature = f"the possessive repetition {token_text}"
        elif kind == "escape" and token_text[1:] in _ESCAPES:
            feature = _ESCAPES[token_text[1:]]
        else:
            continue
        return f"{feature} is not supported"
    return None


def without_spacing(text: str) -> str:
    """A pattern of option x: blanks and comments outside of classes taken out."""
    parts: list[str] = []
    comment = False
    for token in _TOKEN.finditer(text):
        part = token[0]
        if comment:
            comment = "\n" not in part
        elif part == "#":
            comment = True
        elif not part.isspace():
            parts.append(part)
    return "".join(parts)
