"""The program uses each of its functions and classes: nothing is kept for tests, pages or benchmarks alone."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from fnmatch import fnmatch
from pathlib import Path

from tests.unit.docs.program import parsed

SRC = Path(__file__).parents[3] / "src" / "pilotage"

EXCUSED = {
    "client/*": "the Python interface for users",
    "joblib.py:*": "called by joblib",
    "core/shares/correctors/*": "found by the registry",
    "core/requests/start_policies/*": "found by the registry",
    "server/http/connection.py:*": "called by the event loop",
    "server/http/request_reader.py:*": "called by the parser of HTTP",
    "server/http/tls_handshake.py:*": "called by the event loop",
    "wire/tls.py:wrap_bio": "called by ssl",
    "twin/batch/*": "a simulation composes batch systems, and chooses their faults",
    "store/tables/jobs.py:OfferedJobRow": "names the columns of tuples that the match makes by the thousand",
}
"""File and name, and the reason."""
LONGEST = 60
"""Characters of a text that may hold a name, such as an entry of a registry."""

Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


def definitions(tree: ast.AST) -> Iterator[str]:
    """Names of functions and classes. A decorator, as of a route or a command, is a use."""
    for node in ast.walk(tree):
        if isinstance(node, Definition) and not node.decorator_list and not node.name.startswith("__"):
            yield node.name


def uses(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Name):
            yield node.id
        elif isinstance(node, ast.Attribute):
            yield node.attr
        elif isinstance(node, ast.keyword) and node.arg:
            yield node.arg
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and len(node.value) <= LONGEST:
            yield from re.findall(r"[A-Za-z_]\w*", node.value)


def unused(sources: dict[str, str]) -> list[str]:
    """`file:name` of each function and class that no file names. A name that several have counts for all."""
    trees = {name: parsed(source) for name, source in sources.items()}
    used = {use for tree in trees.values() for use in uses(tree)}
    return [
        f"{name}:{defined}"
        for name, tree in trees.items()
        for defined in definitions(tree)
        if defined not in used
    ]


def test_the_program_uses_each_function_and_class() -> None:
    sources = {
        file.relative_to(SRC).as_posix(): file.read_text("utf-8") for file in sorted(SRC.rglob("*.py"))
    }
    places = unused(sources)
    assert not [place for place in places if not any(fnmatch(place, excused) for excused in EXCUSED)]
    assert not [excused for excused in EXCUSED if not any(fnmatch(place, excused) for place in places)]
