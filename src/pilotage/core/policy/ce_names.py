"""Names of CEs: which ones can be used at all, and which ones are easy to use."""

from __future__ import annotations

import re
from typing import Final

LONGEST: Final = 200
"""Characters. Commands and routes take no longer name."""

_PLAIN: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.:/@+-]*")
PLAIN_CHARACTERS: Final = "letters, digits and `_.:/@+-`, with a letter, a digit or `_` at the beginning"


def mistake_in_name(name: str) -> str:
    """Why no command could name a CE so; empty: one can."""
    if not name:
        return "is empty"
    if len(name) > LONGEST:
        return f"has {len(name)} characters; the limit is {LONGEST}"
    if not name.isprintable() or name != name.strip():
        return "has characters that cannot be shown, or blanks at an end"
    return ""


def is_plain(name: str) -> bool:
    """Whether the name needs no quotes in a shell and is never taken for an option."""
    return _PLAIN.fullmatch(name) is not None
