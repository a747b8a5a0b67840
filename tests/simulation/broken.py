"""How a check tells that something does not hold."""

from __future__ import annotations


class Broken(AssertionError):
    """Something that must hold does not."""


def need(holds: bool, text: str) -> None:
    """Raise `Broken` unless it holds."""
    if not holds:
        raise Broken(text)
