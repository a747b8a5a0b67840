"""Times, amounts of memory and lists of numbers as Slurm writes them."""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Final

from pilotage.core.errors import InvalidInput
from pilotage.core.jobs.durations import clock_seconds

_UNITS: Final = {"K": 1 / 1024, "M": 1.0, "G": 1024.0, "T": 1024.0 * 1024}
_MEMORY: Final = re.compile(r"(\d{1,15})([KMGT]?)B?\Z", re.ASCII | re.IGNORECASE)
_RELATIVE: Final = re.compile(r"now(?:([+-])(\d{1,9})(second|minute|hour|day|week|)s?)?\Z")
_DATES: Final = ("%Y-%m-%d", "%m/%d/%y", "%m.%d.%y", "%m/%d", "%m%d", "%m%d%y")
"""The forms of a date in Slurm's manual. A date without a year is of this year."""
_CLOCKS: Final = ("%H:%M:%S", "%H:%M", "%I:%M:%S%p", "%I:%M%p", "%I:%M %p", "%H:%M%p")
_DAYS: Final = {"today": 0, "midnight": 0, "tomorrow": 1, "yesterday": -1}
_HOURS: Final = {"noon": 12, "fika": 15, "teatime": 16, "elevenses": 11}
UNLIMITED: Final = ("0", "-1", "infinite", "unlimited")


def parse_minutes(text: str, option: str) -> int:
    """Seconds of a time limit, in whole minutes as in Slurm; a bare number is minutes. 0: no limit.

    >>> [parse_minutes(text, "--time") for text in ("5", "5:30", "1:00:00", "1-12", "UNLIMITED")]
    [300, 360, 3600, 129600, 0]
    """
    if text.lower() in UNLIMITED:
        return 0
    if text.isascii() and text.isdigit() and len(text) <= 9:
        return int(text) * 60
    # As in Slurm, `1-` is one day, and no blank begins a time.
    seconds = clock_seconds(f"{text}0" if text.endswith("-") else text) if text == text.strip() else None
    if not seconds:
        raise InvalidInput(
            f"{option} {text}: it is no time", hint="minutes, MM:SS, HH:MM:SS, D-HH, D-HH:MM or D-HH:MM:SS"
        )
    return -(-seconds // 60) * 60


def parse_megabytes(text: str, option: str) -> int:
    """MB of an amount of memory, rounded up; 0: all of the node.

    >>> [parse_megabytes(text, "--mem") for text in ("500", "2G", "1500K", "1T")]
    [500, 2048, 2, 1048576]
    """
    match = _MEMORY.match(text.strip())
    if match is None:
        raise InvalidInput(f"{option} {text}: it is no amount of memory", hint="a number with K, M, G or T")
    return -int(-int(match[1]) * _UNITS[match[2].upper() or "M"] // 1)


def parse_count(text: str, option: str, least: int = 1) -> int:
    """A number as C reads it: blanks and a sign may be before it."""
    digits = text.lstrip().removeprefix("+")
    if not (digits.isascii() and digits.isdigit() and len(digits) <= 9 and int(digits) >= least):
        raise InvalidInput(f"{option} {text}: it must be a number from {least} on")
    return int(digits)


def parse_moment(text: str, option: str, now: float) -> float:
    """Seconds since 1970 of a time of sacct: `2026-11-05T14:30`, `1105`, `11/05`, `2:30PM`, `now-2hours`, `today`."""
    word = text.strip().lower()
    local = datetime.fromtimestamp(now).astimezone().replace(tzinfo=None)
    today = local.replace(hour=0, minute=0, second=0, microsecond=0)
    relative = _RELATIVE.match(word)
    if relative is not None:
        if not relative[1]:
            return now
        unit = {"": "second"}.get(relative[3], relative[3])
        shift = timedelta(**{f"{unit}s": int(relative[2])}).total_seconds()
        return now + shift if relative[1] == "+" else now - shift
    if word in _DAYS:
        return _instant(today + timedelta(days=_DAYS[word]))
    if word in _HOURS:
        return _instant(today.replace(hour=_HOURS[word]))
    clock = _parse_first(word, _CLOCKS)
    if clock is not None:
        return _instant(datetime.combine(today, clock.time()))
    for between in ("t", "-"):
        day, _, hour = word.rpartition(between)
        date, clock = _parse_date(day, today.year), _parse_first(hour, _CLOCKS)
        if date is not None and clock is not None:
            return _instant(datetime.combine(date, clock.time()))
    date = _parse_date(word, today.year)
    if date is not None:
        return _instant(date)
    raise InvalidInput(
        f"{option} {text}: it is no time", hint="2026-11-05, 2026-11-05T14:30:00 or now-2hours"
    )


def _instant(local: datetime) -> float:
    """Seconds since 1970. The offset is that of the local time itself, also on a day on which clocks change."""
    return local.astimezone().timestamp()


def _parse_date(word: str, year: int) -> datetime | None:
    for form in _DATES:
        if word.isdigit() and len(word) != 2 * form.count("%"):
            continue
        has_year = "%y" in form.lower()
        # Without a year Python would take 1900, which has no 29 February.
        date = _parse_first(word if has_year else f"{year} {word}", [form if has_year else f"%Y {form}"])
        if date is not None:
            return date
    return None


def _parse_first(word: str, forms: Iterable[str]) -> datetime | None:
    """The time of a word by the first of these forms that it has."""
    for form in forms:
        try:
            return datetime.strptime(word, form)  # noqa: DTZ007 - `_instant` adds the offset of that day
        except ValueError:
            continue
    return None


def format_clock(seconds: float, *, days_at: int = 1) -> str:
    """`M:SS`, `H:MM:SS` or `D-HH:MM:SS` as in squeue.

    >>> [format_clock(seconds) for seconds in (5, 3605, 90061)]
    ['0:05', '1:00:05', '1-01:01:01']
    """
    days, rest = divmod(int(max(0.0, seconds)), 86_400)
    hours, rest = divmod(rest, 3600)
    minutes, second = divmod(rest, 60)
    if days >= days_at:
        return f"{days}-{hours:02}:{minutes:02}:{second:02}"
    return f"{hours}:{minutes:02}:{second:02}" if hours else f"{minutes}:{second:02}"


def format_long_clock(seconds: float) -> str:
    """`HH:MM:SS` or `D-HH:MM:SS` as in sacct.

    >>> [format_long_clock(seconds) for seconds in (5, 90061)]
    ['00:00:05', '1-01:01:01']
    """
    days, rest = divmod(int(max(0.0, seconds)), 86_400)
    clock = f"{rest // 3600:02}:{rest // 60 % 60:02}:{rest % 60:02}"
    return f"{days}-{clock}" if days else clock


def format_moment(at: float | None, absent: str) -> str:
    return absent if at is None else datetime.fromtimestamp(at).astimezone().strftime("%Y-%m-%dT%H:%M:%S")


def format_ranges(numbers: list[int]) -> str:
    """Ascending numbers in short: `0-3,7`. As in Slurm, only more than five numbers have a step: `0-12:2`.

    >>> [format_ranges(numbers) for numbers in ([0, 1, 2, 3, 7], [1, 3, 5], [*range(0, 13, 2)])]
    ['0-3,7', '1,3,5', '0-12:2']
    """
    if len(numbers) > 5 and numbers[-1] - numbers[0] > 10 and numbers[1] - numbers[0] > 1:
        step = numbers[1] - numbers[0]
        if numbers == list(range(numbers[0], numbers[-1] + 1, step)):
            return f"{numbers[0]}-{numbers[-1]}:{step}"
    parts: list[str] = []
    begin = 0
    for place in range(1, len(numbers) + 1):
        if place == len(numbers) or numbers[place] != numbers[place - 1] + 1:
            first, last = numbers[begin], numbers[place - 1]
            parts.append(str(first) if first == last else f"{first}-{last}")
            begin = place
    return ",".join(parts)
