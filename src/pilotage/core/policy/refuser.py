"""Refusals of a policy, with the line of the key that is wrong."""

from __future__ import annotations

from typing import Any

from pilotage.core.errors import InvalidInput
from pilotage.core.key_lines import line_of


class Refuser:
    """Raises `InvalidInput` with the line of the given keys."""

    def __init__(self, text: str) -> None:
        self._text = text

    def __call__(self, message: str, *keys: str, hint: str = "") -> None:
        raise InvalidInput(message, hint=hint, line=line_of(self._text, list(keys)), field=".".join(keys))


def known_names(names: dict[str, Any]) -> str:
    return f"there are: {', '.join(sorted(names)) or 'none'}"
