"""Settings of the Python interpreter for a server."""

from __future__ import annotations

import gc
import sys

SWITCH_INTERVAL = 0.0001
"""Seconds after which a running thread releases Python's lock to a waiting one. SQLite's calls take the lock at every
row, and wait up to this time if a duty computes in another thread."""

YOUNG_OBJECTS = 2_000
"""New objects that start a collection of the youngest generation, which takes 1 ms. With ten times as many, a single
collection was the longest of all pauses for a pilot (20 ms)."""


YOUNG_COLLECTIONS = 5
"""Collections of the youngest generation before one of the second, which takes up to 2 ms then. Each object is scanned
as often with another number, but in longer or shorter pauses."""


def shorten_switch_interval() -> None:
    sys.setswitchinterval(SWITCH_INTERVAL)


def freeze_gc() -> None:
    """Exclude the objects loaded at start-up from collections. Scanning them took a twelfth of the time of a match."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(YOUNG_OBJECTS, YOUNG_COLLECTIONS, 400)
