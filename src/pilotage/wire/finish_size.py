"""The size of the reports about ended payloads, by which pilot and server cut their messages."""

from __future__ import annotations

from .pilot import Finish

MAX_REPORTED = 50_000
"""Size of the finishes in one message of a pilot, counted by `size_of`. The rest comes with the next message."""


def size_of(finish: Finish) -> int:
    """How large a finish is: its values, and a value for each 100 characters of its texts."""
    texts = [finish.message, finish.stdout or "", finish.stderr or "", *finish.outputs, *finish.missing]
    size = 20 + sum(1 + len(text) // 100 for text in texts)
    size += sum(2 + (len(refused.name) + len(refused.reason)) // 100 for refused in finish.refused)
    return size + sum(8 + 4 * len(file.lumis) for file in finish.files)
