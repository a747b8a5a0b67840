"""Times, amounts of memory and lists of numbers as Slurm writes them."""

from __future__ import annotations

import re
from datetime import datetime, timedelta
from typing import Final

from pilotage.core.errors import InvalidInput
from pilotage.core.jobs.durations import clock_seconds

_UNITS: Final = {"K": 1 / 1024, "M": 1.0, "G": 1024.0, "T": 1024.0 * 1024}
_MEMORY: Final = re.compile(r"(\d{1,15})([KMGT]?)B?\Z", re.ASCII | re.IGNORECASE)
_RELATIVE: Final = re.compile(r"now(?:([+-])(\d{1,9})(second|minute|hour|day|week|)s?)?\Z")
_FORMS: Final = (
    "%Y-%m-%dT%H:%M:%S",
    "%Y-%m-%dT%H:%M",
    "%Y-%m-%d",
    "%m/%d/%y",
    "%m/%d/%y-%H:%M:%S",
    "%m/%d/%y-%H:%M",
)
_CLOCKS: Final = ("%H:%M:%S", "%H:%M")
UNLIMITED: Final = ("0", "-1", "infinite", "unlimited")


def parse_minutes(text: str, option: str) -> int:
    """Seconds of a time limit, in whole minutes as in Slurm; a bare number is minutes. 0: no limit.

    >>> [parse_minutes(text, "--time") for text in ("5", "5:30", "1:00:00", "1-12", "UNLIMITED")]
    [300, 360, 3600, 129600, 0]
    """
    stripped = text.strip()
    if stripped.lower() in UNLIMITED:
        return 0
    if stripped.isascii() and stripped.isdigit() and len(stripped) <= 9:
        return int(stripped) * 60
    seconds = clock_seconds(stripped)
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
    if not (text.isascii() and text.isdigit() and len(text) <= 9 and int(text) >= least):
        raise InvalidInput(f"{option} {text}: it must be a number from {least} on")
    return int(text)


def parse_moment(text: str, option: str, now: float) -> float:
    """Seconds since 1970 of a time of sacct: `2026-11-05`, `2026-11-05T14:30`, `14:30`, `now-2hours`, `today`."""
    word = text.strip()
    midnight = datetime.fromtimestamp(now).astimezone().replace(hour=0, minute=0, second=0, microsecond=0)
    relative = _RELATIVE.match(word.lower())
    if relative is not None:
        if not relative[1]:
            return now
        unit = {"": "second"}.get(relative[3], relative[3])
        shift = timedelta(**{f"{unit}s": int(relative[2])}).total_seconds()
        return now + shift if relative[1] == "+" else now - shift
    days = {"today": 0, "midnight": 0, "tomorrow": 1, "yesterday": -1}
    if word.lower() in days:
        return (midnight + timedelta(days=days[word.lower()])).timestamp()
    for form in (*_FORMS, *_CLOCKS):
        try:
            listed = datetime.strptime(word, form).astimezone()
        except ValueError:
            continue
        if form in _CLOCKS:
            return midnight.replace(hour=listed.hour, minute=listed.minute, second=listed.second).timestamp()
        return listed.timestamp()
    raise InvalidInput(
        f"{option} {text}: it is no time", hint="2026-11-05, 2026-11-05T14:30:00 or now-2hours"
    )


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
