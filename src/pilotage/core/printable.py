"""Texts of other people, made safe for a terminal, a log or a mail."""

from __future__ import annotations


def printable(value: object) -> str:
    """One line without control characters: names and messages come from other people's jobs. None is an empty text."""
    text = "" if value is None else str(value)
    if text.isprintable():
        return text
    return "".join(letter if letter.isprintable() else " " for letter in text)


def printable_lines(text: str) -> str:
    """Lines without control characters: parts of messages come from files and servers."""
    return "".join(
        letter if letter.isprintable() or letter == "\n" else "\N{REPLACEMENT CHARACTER}" for letter in text
    )
