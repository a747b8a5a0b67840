"""Numbers, times and texts as pages show them."""

from __future__ import annotations

import re
from datetime import UTC, datetime

from markupsafe import Markup

from pilotage.core.jobs.durations import format_duration
from pilotage.core.jobs.states import FINAL

_CONTROLS = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|[\x00-\x08\x0b-\x1f\x7f-\x9f]")
SIGNS = {
    "Done": "✓",
    "Failed": "✗",
    "Killed": "■",
    "Held": "‖",
    "Blocked": "⊘",
    "Running": "▶",
    "Waiting": "○",
    "active": "✓",
    "normal": "✓",
    "drain": "‖",
    "paused": "‖",
    "disabled": "■",
    "stopped": "✗",
    "unreachable": "✗",
    "down": "✗",
    "banned": "■",
    "completed": "✓",
    "running-open": "▶",
    "running-closed": "▶",
    "failed": "✗",
    "aborted": "■",
    "rejected": "■",
}
"""A sign for the states that people see most: a state is never told by its colour alone."""
_TONES = {
    "Done": "good",
    "Failed": "bad",
    "Killed": "bad",
    "Running": "busy",
    "Held": "stopped",
    "Blocked": "stopped",
    "active": "good",
    "normal": "good",
    "drain": "stopped",
    "paused": "stopped",
    "disabled": "stopped",
    "stopped": "bad",
    "unreachable": "bad",
    "down": "bad",
    "banned": "bad",
    "completed": "good",
    "closed-out": "good",
    "announced": "good",
    "running-open": "busy",
    "running-closed": "busy",
    "failed": "bad",
    "aborted": "bad",
    "rejected": "bad",
}


def instant(seconds: float | None, now: float) -> Markup | str:
    """How long ago it was, with the exact time."""
    if seconds is None:
        return ""
    at = datetime.fromtimestamp(seconds, UTC)
    exact = at.strftime("%Y-%m-%d %H:%M:%S UTC")
    gone = now - seconds
    words = (
        f"{format_duration(gone)} ago"
        if gone >= 1
        else "now"
        if gone > -1
        else f"in {format_duration(-gone)}"
    )
    return Markup('<time datetime="{}" title="{}">{}</time>').format(at.isoformat(), exact, words)


def duration(seconds: float | None) -> str:
    return "" if seconds is None else format_duration(seconds)


def count(number: float) -> str:
    """A number of things."""
    return f"{number:,.0f}"


def percent(part: float | None) -> str:
    return "" if part is None else f"{part:.1%}"


def size(count: int) -> str:
    """Bytes, such as "4.2 MB"."""
    amount = float(count)
    for unit in ("bytes", "kB", "MB", "GB"):
        if amount < 1000:
            return f"{amount:.0f} {unit}" if unit == "bytes" or amount >= 10 else f"{amount:.1f} {unit}"
        amount /= 1000
    return f"{amount:,.1f} TB"


def text(data: bytes) -> str:
    """Output of a program as text, without the characters that steer terminals."""
    return _CONTROLS.sub("", data.decode("utf-8", "replace"))


def sign(state: str) -> str:
    return SIGNS.get(state, "■" if state in FINAL else "◌")


def tone(state: str) -> str:
    """The class of a state in the style sheet."""
    return _TONES.get(state, "plain")
