"""Texts made from good ones by chance: cut, doubled, spliced, with tokens that mean something to some parser."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from random import Random
from typing import Final

LONGEST: Final = 200_000

TOKENS: Final = (
    *(
        "[",
        "]",
        "{",
        "}",
        "(",
        ")",
        '"',
        "'",
        '"""',
        "'''",
        "\\",
        "/",
        "*",
        "+",
        "-",
        "=",
        ",",
        ";",
        ":",
        ".",
        "|",
        ">",
    ),
    *(
        "[[",
        "]]",
        "&a ",
        "*a",
        "!!str ",
        "!x ",
        "%TAG ! x\n",
        "%YAML 1.1\n",
        "---\n",
        "...\n",
        "? ",
        "- ",
        "<<: ",
        "|\n ",
        "#",
    ),
    *(
        "//",
        "/*",
        "*/",
        "=?=",
        "=!=",
        "?:",
        "&&",
        "||",
        ">>>",
        "is",
        "isnt",
        "undefined",
        "error",
        "true",
        "false",
        "null",
        "~",
    ),
    *(
        "(?=",
        "(?<!",
        "(?>",
        "\\1",
        "a{1000}",
        "(a*)*",
        "[[:alpha:]]",
        "\\pL",
        "\\Q",
        "x{0,200}",
        "(?i)",
        "++",
        "$",
        "^",
    ),
    *(
        "0",
        "-0",
        "1e999",
        "-1e999",
        "1e-999",
        "nan",
        "inf",
        "NaN",
        "Infinity",
        "0x7f",
        "0o7",
        "1_000",
        "9" * 19,
        "9" * 5000,
    ),
    *(
        "9223372036854775807",
        "9223372036854775808",
        "-9223372036854775809",
        "18446744073709551616",
        "2147483648",
        "0.1",
    ),
    *(
        "\0",
        "\x01",
        "\x7f",
        "\x85",
        "\u2028",
        "\u2029",
        "\ufeff",
        "\ufffe",
        "\ud800",
        "\udfff",
        "\U0001f600",
        "é",
        "\u0660",
    ),
    *(
        "%s",
        "%n",
        "%(a)s",
        "%(",
        "_PARAM_",
        "..",
        "../",
        "/etc",
        "~",
        "LFN:",
        "http://",
        "shared:",
        "$HOME",
        "`x`",
    ),
    *(
        "1:30",
        "1-2:3",
        "2 h",
        "2GB",
        "1d",
        "12-40",
        "12-",
        "2026-11-22",
        "2026-02-30",
        "0001-01-01",
        "9999-12-31",
        "\n",
        "\r\n",
        "\r",
        "\t",
        "  ",
        "\f",
    ),
)


def mutated(rng: Random, corpus: Sequence[str]) -> str:
    """A text that is one of `corpus`, changed a few times."""
    text = rng.choice(corpus)
    for _ in range(rng.choice((0, 1, 1, 2, 3, 5, 8, 20))):
        text = rng.choice(_CHANGES)(rng, text, corpus)[:LONGEST]
    return text


def _place(rng: Random, text: str) -> int:
    return rng.randint(0, len(text))


def _span(rng: Random, text: str) -> tuple[int, int]:
    first = _place(rng, text)
    return first, min(len(text), first + rng.choice((1, 2, 5, 20, 100)))


def _cut(rng: Random, text: str, corpus: Sequence[str]) -> str:
    first, last = _span(rng, text)
    return text[:first] + text[last:]


def _end(rng: Random, text: str, corpus: Sequence[str]) -> str:
    return text[: _place(rng, text)]


def _double(rng: Random, text: str, corpus: Sequence[str]) -> str:
    first, last = _span(rng, text)
    return text[:last] + text[first:last] * rng.choice((1, 1, 2, 10, 100, 3000)) + text[last:]


def _token(rng: Random, text: str, corpus: Sequence[str]) -> str:
    at = _place(rng, text)
    return text[:at] + rng.choice(TOKENS) * rng.choice((1, 1, 1, 1, 2, 3, 60, 5000)) + text[at:]


def _replace(rng: Random, text: str, corpus: Sequence[str]) -> str:
    first, last = _span(rng, text)
    return text[:first] + rng.choice(TOKENS) + text[last:]


def _letter(rng: Random, text: str, corpus: Sequence[str]) -> str:
    at = _place(rng, text)
    return (
        text[:at]
        + chr(rng.choice((rng.randrange(128), rng.randrange(0x300), rng.randrange(0x110000))))
        + text[at + 1 :]
    )


def _splice(rng: Random, text: str, corpus: Sequence[str]) -> str:
    other = rng.choice(corpus)
    first, last = sorted((_place(rng, other), _place(rng, other)))
    at = _place(rng, text)
    return text[:at] + other[first:last] + text[at:]


def _wrap(rng: Random, text: str, corpus: Sequence[str]) -> str:
    opening, closing = rng.choice(
        (("[", "]"), ("{", "}"), ("(", ")"), ("[a=", "]"), ("{a: ", "}"), ('{"a":', "}"), ("-(", ")"))
    )
    depth = rng.choice((1, 3, 30, 49, 51, 99, 101, 5000))
    first, last = _span(rng, text)
    return text[:first] + opening * depth + text[first:last] + closing * depth + text[last:]


def _lines(rng: Random, text: str, corpus: Sequence[str]) -> str:
    lines = text.splitlines(keepends=True)
    rng.shuffle(lines)
    return "".join(lines)


_VALUE: Final = re.compile(r"""(?:[:=]|\[)\s*("(?:[^"\\]|\\.)*+"|[^\s,\[\]{}=:]+)""")
VALUES: Final = (
    *("{a: b}", '{"a": "b"}', '{a = "b"}', "[]", "{}", "[1]", "[[]]", '[["a", 1, 2]]', '""', '"x"', "x"),
    *("1e999", "-1e999", ".inf", ".nan", "nan", "NaN", "Infinity", "1.5", "-1", "0", "true", "null", "~"),
    *("9" * 30, '"\\ud800"', "2026-11-22", "!!binary aGk=", "0x1p3"),
)
"""Values of every kind, as JSON, YAML and TOML write them."""


def _other_values(rng: Random, text: str, corpus: Sequence[str]) -> str:
    """One or two values become values of another kind: the text stays readable, and several mistakes meet."""
    for _ in range(rng.choice((1, 2, 2))):
        places = [match.span(1) for match in _VALUE.finditer(text[:5000])]
        if places:
            first, last = rng.choice(places)
            text = text[:first] + rng.choice(VALUES) + text[last:]
    return text


_CHANGES: Final[tuple[Callable[[Random, str, Sequence[str]], str], ...]] = (
    *(_cut, _cut, _end, _double, _token, _token, _token),
    *(_replace, _replace, _letter, _splice, _wrap, _lines, _other_values, _other_values),
)
