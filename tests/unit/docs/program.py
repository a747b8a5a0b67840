"""The text of the program as trees, for tests that look at all of it: to parse it takes seconds."""

from __future__ import annotations

import ast
from functools import cache


@cache
def parsed(source: str) -> ast.Module:
    """The tree of a file's text. Tests share it, and so they leave it as it is."""
    return ast.parse(source)
