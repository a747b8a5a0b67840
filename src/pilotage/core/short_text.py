"""Text that is cut in its middle: names come first, and the reason stands at the end."""

from __future__ import annotations


def cut_middle(text: str, most: int) -> str:
    """The beginning and the end of a text, at most `most` characters together."""
    if len(text) <= most:
        return text
    end = most * 2 // 3
    return f"{text[: most - end - 1]}…{text[-end:]}"
