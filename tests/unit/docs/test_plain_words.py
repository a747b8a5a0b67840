"""Docstrings and comments of src are plain: short sentences, and none of the words that make the reader guess."""

from __future__ import annotations

import ast
import inspect
import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

from tests.unit.docs.program import parsed

SRC = Path(__file__).parents[3] / "src" / "pilotage"

MOST_WORDS = 25

PATTERNS = {
    r"^Have (?!no\b)": "say what is done: 'Run …', not 'Have … run'",
    r"\bso (many|much|long)\b(?! (as|that)\b)": "name the quantity and its unit",
    r"\bthose\b": "repeat the noun",
    r"\bwhat\b": "name the thing",
    r"\b(see|sees|seen) to\b": "name the action",
    r"\bwhose\b.*\bwhose\b": "split the sentence",
    r"\b(is|are) to be\b": "say 'must', or who does it",
    r"\b(whoever|whatever)\b": "name the subject",
    r"\b(some of them|the ones|this one|that one)\b": "repeat the noun",
    r"\b(likewise|thereof|wherein|anew)\b": "say 'also', 'of it', 'in which', 'again'",
    r"(?-i:\b(?!that\b|had\b)([a-z]+) \1\b)": "a word twice",
}
"""Each pattern with the better way."""

OPENING = re.compile(r"(Of|By|As)\b")
"""The first word of a docstring that lacks its noun."""

DIRECTIVE = re.compile(r"(type:|noqa|pragma|ruff|mypy)")
CODE = re.compile(r"`+[^`]*`+")
EXAMPLE = re.compile(r"^\s*>>> .*?(?:\n\s*$|\Z)", re.MULTILINE | re.DOTALL)
TABLE_ROW = re.compile(r"\S {2,}\S|[│├└]")
PARAGRAPH_END = re.compile(r"\n\s*\n|\n\s*[-*] |:\n")
SENTENCE_END = re.compile(r"(?<=[.;:?!])\s+")
WORD = re.compile(r"[A-Za-z0-9_'-]+")


def sentences(text: str) -> Iterator[str]:
    """The sentences of a docstring or comment.

    Code counts as one word. Examples are left out. A row of a table is a sentence.
    """
    prose = []
    for line in CODE.sub("X", EXAMPLE.sub("\n", text)).splitlines():
        prose.append(f"\n{line}\n" if TABLE_ROW.search(line) else line)
    for paragraph in PARAGRAPH_END.split("\n".join(prose)):
        yield from filter(None, SENTENCE_END.split(" ".join(paragraph.split())))


def objections(sentence: str) -> list[str]:
    """The reasons why a sentence is not plain."""
    count = len(WORD.findall(sentence))
    long = [f"{count} words: split it"] if count > MOST_WORDS else []
    found = [
        f"'{match[0]}': {advice}"
        for pattern, advice in PATTERNS.items()
        if (match := re.search(pattern, sentence, re.IGNORECASE))
    ]
    return long + found


def opening_objections(text: str) -> list[str]:
    """The reason why a docstring does not open plainly."""
    match = OPENING.match(text)
    return [f"opens with '{match[0]}': begin with a noun or a verb"] if match else []


def docstrings(source: str) -> Iterator[tuple[int, str]]:
    """Docstrings of modules, classes, functions and attributes, with their lines."""
    for node in ast.walk(parsed(source)):
        body = getattr(node, "body", None)
        for statement in body if isinstance(body, list) else ():
            if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant):
                text = statement.value.value
                yield statement.lineno, inspect.cleandoc(text) if isinstance(text, str) else ""


def comments(source: str) -> Iterator[tuple[int, str]]:
    """Comments with their lines. Comments on consecutive lines are one text."""
    texts: dict[int, list[str]] = {}
    first = last = -1
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        text = token.string.lstrip("#").strip()
        if token.type != tokenize.COMMENT or DIRECTIVE.match(text):
            continue
        if token.start[0] != last + 1:
            first = token.start[0]
        last = token.start[0]
        texts.setdefault(first, []).append(text)
    for line, parts in texts.items():
        yield line, " ".join(parts)


def complaints(file: Path) -> Iterator[str]:
    source = file.read_text(encoding="utf-8")
    for line, text in docstrings(source):
        for objection in opening_objections(text):
            yield f"{file.relative_to(SRC)}:{line}: {objection}: {text}"
    for line, text in (*docstrings(source), *comments(source)):
        for sentence in sentences(text):
            for objection in objections(sentence):
                yield f"{file.relative_to(SRC)}:{line}: {objection}: {sentence}"


FILES = sorted(SRC.rglob("*.py"))


def test_every_sentence_is_plain() -> None:
    found = [text for file in FILES for text in complaints(file)]
    assert not found, "\n" + "\n".join(found)


EMPTY_NAMES = frozenset({"one", "found", "told", "thing", "stuff"})
"""Names that do not say which value they hold."""
MIGRATIONS = SRC / "store" / "migrations" / "versions"


def test_locals_say_what_they_hold() -> None:
    """Released migrations never change."""
    named = [
        f"{file.relative_to(SRC)}:{node.lineno}: {node.id}"
        for file in FILES
        if file.parent != MIGRATIONS
        for node in ast.walk(parsed(file.read_text(encoding="utf-8")))
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store) and node.id in EMPTY_NAMES
    ]
    assert not named, "\n" + "\n".join(named)
