"""Files of src have at most 400 lines, functions at most 40: subjects are split before they grow."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from fnmatch import fnmatch
from pathlib import Path

from tests.unit.docs.program import parsed

SRC = Path(__file__).parents[3] / "src" / "pilotage"

MOST_LINES_OF_FILE = 400
MOST_LINES_OF_FUNCTION = 40
"""Of the body. Signature and docstring do not count: a signature of options is a table."""

EXCUSED: dict[str, str] = {}
"""File, or file and function, and the reason."""


def is_docstring(statement: ast.stmt) -> bool:
    return (
        isinstance(statement, ast.Expr)
        and isinstance(statement.value, ast.Constant)
        and isinstance(statement.value.value, str)
    )


def functions(source: str) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    for node in ast.walk(parsed(source)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node


def length(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """The number of lines of the body."""
    body = function.body[1:] if is_docstring(function.body[0]) else function.body
    return (function.end_lineno or 0) - body[0].lineno + 1 if body else 0


def too_large(name: str, source: str) -> Iterator[str]:
    """`name` if the file has too many lines, and `name:function` for each function that has."""
    if len(source.splitlines()) > MOST_LINES_OF_FILE:
        yield name
    for function in functions(source):
        if length(function) > MOST_LINES_OF_FUNCTION:
            yield f"{name}:{function.name}"


def test_files_and_functions_stay_small() -> None:
    found = [
        place
        for file in sorted(SRC.rglob("*.py"))
        for place in too_large(file.relative_to(SRC).as_posix(), file.read_text(encoding="utf-8"))
    ]
    assert not [place for place in found if not any(fnmatch(place, excused) for excused in EXCUSED)]
    assert not [excused for excused in EXCUSED if not any(fnmatch(place, excused) for place in found)]


def test_a_function_has_one_docstring() -> None:
    """A second one is left over from another wording. A text after an assignment describes an attribute."""
    found = [
        f"{file.relative_to(SRC)}:{after.lineno}"
        for file in sorted(SRC.rglob("*.py"))
        for function in functions(file.read_text(encoding="utf-8"))
        for before, after in zip(function.body, function.body[1:], strict=False)
        if is_docstring(after) and not isinstance(before, ast.Assign | ast.AnnAssign | ast.AugAssign)
    ]
    assert not found
