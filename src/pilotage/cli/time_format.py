"""Instants and durations as people read them."""

from __future__ import annotations

import re
from datetime import UTC, datetime

from pilotage.core.errors import InvalidInput
from pilotage.core.jobs.durations import clock_seconds
from pilotage.core.jobs.durations import format_duration as format_duration

MAX_LENGTH = 100
"""Characters of a time."""

UNITS = {"s": 1, "m": 60, "min": 60, "h": 3600, "d": 86400, "w": 604800}


def format_instant(at: float | None, now: float, *, exact: bool) -> str:
    """Local time and how long ago, or with `exact` (for pipes) ISO 8601 with its offset."""
    if at is None:
        return ""
    local = datetime.fromtimestamp(at).astimezone()
    if exact:
        return local.isoformat(timespec="seconds")
    today = datetime.fromtimestamp(now).astimezone().date()
    clock = f"{local:%H:%M:%S}" if local.date() == today else f"{local:%Y-%m-%d %H:%M}"
    relative = f"{format_duration(now - at)} ago" if at <= now else f"in {format_duration(at - now)}"
    return f"{clock} ({relative})"


def parse_duration(text: str) -> float:
    """Seconds: "90", "90s", "15m", "2h", "1h30m", "3d"; with colons or days as Slurm: "1:30" is 90 s, "1-12" 36 h."""
    stripped = text.strip().lower().replace(" ", "")
    if len(stripped) > MAX_LENGTH:
        # To search it for units would take time with the square of its length.
        raise InvalidInput(f"a duration of {len(stripped)} characters is too long")
    if re.fullmatch(r"\d+(\.\d+)?", stripped):
        return float(stripped)
    clock = clock_seconds(stripped)
    if clock is not None:
        return float(clock)
    parts = re.findall(r"(\d+(?:\.\d+)?)(min|[smhdw])", stripped)
    if not parts or "".join(number + unit for number, unit in parts) != stripped:
        raise InvalidInput(f"{text!r} is not a duration", hint="write 90s, 15m, 2h, 1h30m, 3d or 1:30:00")
    return sum(float(number) * UNITS[unit] for number, unit in parts)


def parse_instant(text: str, now: float) -> float:
    """Seconds since 1970: "2d" means 2 days ago, "2026-11-05" and "2026-11-05 14:30" are local time."""
    try:
        return datetime.fromisoformat(text.strip()).astimezone().timestamp()
    except ValueError:
        pass
    try:
        return now - parse_duration(text)
    except InvalidInput:
        hint = "write how long ago (90s, 2h, 3d) or a date (2026-11-05, 2026-11-05 14:30)"
        raise InvalidInput(f"{text!r} is not a time", hint=hint) from None


def parse_end(text: str, now: float) -> float:
    """Seconds since 1970: "2d" means in 2 days, "2026-11-05" and "2026-11-05 14:30" are local time."""
    try:
        return datetime.fromisoformat(text.strip()).astimezone().timestamp()
    except ValueError:
        pass
    try:
        return now + parse_duration(text)
    except InvalidInput:
        hint = "write in how long (90s, 2h, 3d) or a date (2026-11-05, 2026-11-05 14:30)"
        raise InvalidInput(f"{text!r} is not a time", hint=hint) from None


def utc_period(text: str) -> tuple[float, float]:
    """A month or a day in UTC, as the instants where it begins and ends."""
    for pattern in ("%Y-%m-%d", "%Y-%m"):
        try:
            first = datetime.strptime(text, pattern).replace(tzinfo=UTC)
            following = datetime(first.year + first.month // 12, first.month % 12 + 1, 1, tzinfo=UTC)
        except ValueError:
            continue
        if pattern == "%Y-%m-%d":
            return first.timestamp(), first.timestamp() + 86400
        return first.timestamp(), following.timestamp()
    raise InvalidInput(f"{text!r} is not a date", hint="write a month, 2026-11, or a day, 2026-11-05")


def format_size(size: int) -> str:
    """Such as "812 B", "4.1 kB", "12 MB"."""
    amount = float(size)
    for unit in ("B", "kB", "MB", "GB"):
        if amount < 999.5:
            return f"{amount:.0f} {unit}" if unit == "B" or amount >= 10 else f"{amount:.1f} {unit}"
        amount /= 1000
    return f"{amount:.1f} TB"
