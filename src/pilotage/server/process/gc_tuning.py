"""How Python itself is set for a server."""

from __future__ import annotations

import gc
import sys

TURN = 0.0001
"""Seconds after which a thread at work lets the others have a turn. SQLite's calls ask for Python's lock at every row,
and each time wait for so long if a duty computes something beside."""

NEW = 2_000
"""So many new objects are looked through at once for those that hold each other and nobody else holds: 1 ms. Ten times
as many are looked through in one pause as well, which was the longest of all that a pilot waited for (20 ms)."""


def take_short_turns() -> None:
    sys.setswitchinterval(TURN)


def freeze_gc() -> None:
    """What was read at the start stays: looking through it again and again took a twelfth of the time of a match."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(NEW, 10, 200)
