"""How far a request has come, and when it may end."""

from __future__ import annotations

from typing import Final

RATE_WINDOW: Final = 3600.0
"""Seconds: the rate is that of the jobs that ended in this time."""
FEWEST: Final = 3
"""Ended jobs that are needed for an estimate."""


def estimated_end(now: float, started: float, left: int, recent: int) -> float | None:
    """When `left` jobs will have ended if they go on as the `recent` ones, which ended within the window.

    None: nothing is left, or too few have ended for an estimate.

    >>> estimated_end(1000.0, 900.0, left=10, recent=20)
    1050.0
    >>> estimated_end(1000.0, 900.0, left=10, recent=2) is None
    True
    """
    if left <= 0 or recent < FEWEST:
        return None
    window = min(RATE_WINDOW, max(now - started, 1.0))
    return now + left * window / recent
