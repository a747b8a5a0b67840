"""Files and dotted names that docstrings and comments of the program tell in backticks are there."""

from __future__ import annotations

import ast
import builtins
import io
import re
import sys
import tokenize
from collections.abc import Iterator
from pathlib import Path

from tests.unit.docs.program import parsed

SRC = Path(__file__).parents[3] / "src" / "pilotage"
QUOTED = re.compile(r"(?<!`)`([\w./]+)`(?!`)")
DOTTED = re.compile(r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)+")
LIBRARIES = {"msgspec", "psycopg", "yaml", *sys.stdlib_module_names, *dir(builtins)}
EXCUSED = {
    "server.json": "a file of the home",
    "server.log": "a file of the home",
    "gridftp05.cern.ch": "a host",
    "Parameters.Seed": "an expression of an ad",
}


def texts(tree: ast.AST, source: str) -> Iterator[str]:
    """Docstrings, of attributes too, and comments."""
    for node in ast.walk(tree):
        match node:
            case ast.Expr(value=ast.Constant(value=str(text))):
                yield text
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            yield token.string


def defined(tree: ast.AST) -> Iterator[str]:
    """Functions, classes, variables, attributes and arguments."""
    for node in ast.walk(tree):
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                yield node.name
            case ast.Name(ctx=ast.Store()):
                yield node.id
            case ast.Attribute(ctx=ast.Store()):
                yield node.attr
            case ast.arg():
                yield node.arg


def is_there(word: str, file: Path, names: set[str]) -> bool:
    """Whether a word in backticks names something. A name that any file defines counts for all."""
    if word.endswith(".py"):
        return (SRC / word).exists() or (file.parent / word).exists()
    if not DOTTED.fullmatch(word):
        return True
    first, *parts = word.removeprefix("pilotage.").split(".")
    if first in LIBRARIES:
        return True
    place = SRC / first
    while place.is_dir() and parts:
        place /= parts.pop(0)
    known = place.exists() or place.with_suffix(".py").exists() or (place.parent == SRC and first in names)
    return known and all(part in names for part in parts)


def missing(sources: dict[Path, str]) -> list[tuple[str, str]]:
    """Each name that nothing has, after its place."""
    trees = {file: parsed(source) for file, source in sources.items()}
    names = {name for tree in trees.values() for name in defined(tree)} | {file.stem for file in sources}
    return [
        (f"{file.relative_to(SRC)}: {word}", word)
        for file, tree in trees.items()
        for text in texts(tree, sources[file])
        for word in QUOTED.findall(text)
        if not is_there(word, file, names)
    ]


def test_names_in_backticks_are_there() -> None:
    found = missing({file: file.read_text("utf-8") for file in sorted(SRC.rglob("*.py"))})
    assert [place for place, word in found if word not in EXCUSED] == []
    assert {word for _, word in found} == EXCUSED.keys()
