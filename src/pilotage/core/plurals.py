"""Numbers with their nouns."""

from __future__ import annotations


def plural(number: int, noun: str) -> str:
    """Such as "1 job", "1,200 jobs"."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"
