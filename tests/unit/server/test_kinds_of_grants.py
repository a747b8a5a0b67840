"""A new kind of grant belongs into `test_grants.py`: no other code of the server makes tokens or keeps callers."""

from __future__ import annotations

import ast
from collections.abc import Callable
from pathlib import Path

import pilotage.server


def _found(match: Callable[[ast.AST], bool]) -> set[str]:
    """The functions and classes of the server in which a node of the syntax tree matches."""
    root = Path(pilotage.server.__file__).parent
    found = set[str]()
    for path in root.rglob("*.py"):
        for outer in ast.walk(ast.parse(path.read_text())):
            if isinstance(outer, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                inner = outer.body if isinstance(outer, ast.ClassDef) else ast.walk(outer)
                if any(match(node) for node in inner):
                    found.add(f"{path.relative_to(root)}: {outer.name}")
    return found


def test_every_way_to_make_a_token_is_a_grant_above() -> None:
    def issues(node: ast.AST) -> bool:
        return (
            isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "issue"
        )

    assert _found(issues) == {
        "http/routes/tokens.py: create_token",
        "http/routes/tokens.py: refresh_token",
        "http/routes/issuers.py: exchange_token",
        "home_token.py: write",
        "web_sessions.py: begin",
    }


def test_nothing_else_keeps_a_caller_for_later() -> None:
    def keeps(node: ast.AST) -> bool:
        annotation = ast.unparse(node.annotation) if isinstance(node, ast.AnnAssign) else ""
        return "Caller" in annotation and "Callable" not in annotation

    of_one_request = {"context.py: identity_of", "http/identity.py: identify", "web/visit.py: __init__"}
    assert _found(keeps) - of_one_request == {"web_sessions.py: _Code"}


def test_one_function_asks_whether_rights_have_ended() -> None:
    def asks(node: ast.AST) -> bool:
        return (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and node.func.attr == "is_revoked"
        )

    assert _found(asks) == {"tokens.py: standing"}
