"""Waits of tests take their deadlines from `tests/deadlines.py`: a number in a call would fail on a loaded machine."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

TESTS = Path(__file__).parents[1]
LONG = 15.0
"""Seconds. Shorter times are a matter of the test, such as a time-out that must pass."""
KEYWORDS = {"timeout", "within"}
WAITS = {"wait", "wait_for", "result", "settimeout", "until", "communicate", "acquire", "reaches", "select"}
"""Functions that take a time-out as their last positional argument, or the one before a text."""
EXCUSED = {
    "acceptance/hostile.py": "a payload, which has no tests",
    "acceptance/isolated_hostile.py": "a payload, which has no tests",
}


def number(node: ast.expr) -> float | None:
    """The number that is written here, also as a part of a sum or product of numbers."""
    match node:
        case ast.Constant(value=int() | float() as value) if not isinstance(value, bool):
            return value
        case ast.BinOp(left=left, right=right):
            numbers = [number(left), number(right)]
            return None if None in numbers else max(filter(None, numbers), default=0.0)
    return None


def times(tree: ast.AST) -> Iterator[ast.expr]:
    """The expressions that say how long a call may last."""
    for node in ast.walk(tree):
        match node:
            case ast.BinOp(left=ast.Call(func=ast.Attribute(attr="monotonic")), op=ast.Add(), right=right):
                yield right
            case ast.Call(func=function, args=args, keywords=keywords):
                yield from (keyword.value for keyword in keywords if keyword.arg in KEYWORDS)
                name = ast.unparse(function).rpartition(".")[2]
                if name == "timeout":
                    yield from args
                elif (name in WAITS and "." in ast.unparse(function)) or name == "until":
                    yield from args[-2:]


def literal_deadlines(source: str) -> list[int]:
    """The lines with a deadline that is a number."""
    return sorted({t.lineno for t in times(ast.parse(source)) if (number(t) or 0.0) >= LONG})


def test_deadlines_of_waits_stretch_with_the_load() -> None:
    found = {
        file.relative_to(TESTS).as_posix(): lines
        for file in sorted(TESTS.rglob("*.py"))
        if (lines := literal_deadlines(file.read_text("utf-8")))
    }
    assert {name: lines for name, lines in found.items() if name not in EXCUSED} == {}, (
        "use PATIENCE of tests/deadlines.py"
    )
    assert found.keys() == EXCUSED.keys()
