"""How far a request has come, and when it may end."""

from __future__ import annotations

from typing import Final

RATE_WINDOW: Final = 3600.0
"""Seconds: the rate is that of the jobs that ended in this time."""
FEWEST: Final = 3
"""Ended jobs that are needed for an estimate."""


def estimated_end(
    now: float, started: float, left: int, recent: int, last_retry: float = 0.0
) -> float | None:
    """When `left` jobs will have ended if they go on as the `recent` ones, which ended within the window.

    `last_retry`: when the last of the failed jobs that pause now is made again. The end is not before.
    None: nothing is left, or too few have ended for an estimate.

    >>> estimated_end(1000.0, 900.0, left=10, recent=20)
    1050.0
    >>> estimated_end(1000.0, 900.0, left=10, recent=20, last_retry=1600.0)
    1600.0
    >>> estimated_end(1000.0, 900.0, left=10, recent=2) is None
    True
    """
    if left <= 0 or recent < FEWEST:
        return None
    window = min(RATE_WINDOW, max(now - started, 1.0))
    return max(now + left * window / recent, last_retry)
