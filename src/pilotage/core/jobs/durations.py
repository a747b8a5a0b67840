"""Durations in the syntax of Slurm, with colons and days, and durations for people."""

from __future__ import annotations

import re
from typing import Final

# At most three digits of days: "2026-11" is more likely an incomplete date.
_CLOCK: Final = re.compile(r"(?:(\d{1,3})-)?(\d{1,9})(?::(\d{1,9}))?(?::(\d{1,9}))?\Z")


def clock_seconds(text: str) -> int | None:
    """The seconds of a duration with a colon or a dash; None for any other text, including a bare number.

    >>> [clock_seconds(text) for text in ("1:30", "2:00:00", "1-12", "1-12:30", "1-12:30:15")]
    [90, 7200, 129600, 131400, 131415]
    >>> clock_seconds("90") is clock_seconds("2h") is None
    True
    """
    match = _CLOCK.match(text.strip())
    if match is None or not (match[1] or match[3]):
        return None
    days, *parts = (None if part is None else int(part) for part in match.groups())
    if days is not None or parts[2] is not None:
        hours, minutes, seconds = (part or 0 for part in parts)
    else:
        hours, minutes, seconds = 0, parts[0] or 0, parts[1] or 0
    return (days or 0) * 86400 + hours * 3600 + minutes * 60 + seconds


def format_duration(seconds: float) -> str:
    """Such as "45 s", "12 min", "3.5 h", "2 d"."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    if seconds < 5400:
        return f"{seconds / 60:.0f} min"
    if seconds < 129_600:
        return f"{seconds / 3600:.1f}".removesuffix(".0") + " h"
    return f"{seconds / 86400:.1f}".removesuffix(".0") + " d"


def format_hours(seconds: float) -> str:
    """Seconds, or core-seconds, as hours with three digits."""
    hours = seconds / 3600
    if hours >= 100:
        return f"{hours:,.0f}"
    return f"{hours:.1f}" if hours >= 10 else f"{hours:.2f}" if hours >= 0.1 or not hours else f"{hours:.4f}"
