"""How deep a text that anybody may send can nest.

Recursive functions walk the parsed text, here and in libraries. A bound, checked before they
begin, keeps the stack short.
"""

from __future__ import annotations

import re
from typing import Final

from pilotage.core.errors import TooLarge

MAX_NESTING: Final = 50
"""Lists and mappings within each other, in YAML, JSON and TOML."""

_TOKEN: Final = re.compile(r'"(?:[^"\\]|\\.)*+"?|[\[\]{}]', re.DOTALL)


def too_deep(line: int | None = None, column: int | None = None) -> TooLarge:
    return TooLarge(f"nested deeper than {MAX_NESTING} levels", line=line, column=column)


def check_brackets(text: str) -> None:
    """Raises `TooLarge`, with its place, for a JSON text that nests deeper than MAX_NESTING."""
    if text.count("[") + text.count("{") <= MAX_NESTING:
        return
    depth = 0
    for match in _TOKEN.finditer(text):
        token = match[0]
        if token in "[{":
            depth += 1
            if depth > MAX_NESTING:
                at = match.start()
                raise too_deep(text.count("\n", 0, at) + 1, at - text.rfind("\n", 0, at))
        elif token in "]}":
            depth -= 1
