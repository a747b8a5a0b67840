"""Places of values on an axis, and the values that get a label."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

SECONDS_LABELS: Final = (
    (1.0, "≤ 1 s"),
    (10.0, "10 s"),
    (60.0, "1 min"),
    (600.0, "10 min"),
    (3600.0, "1 h"),
    (6 * 3600.0, "6 h"),
    (86400.0, "1 d"),
    (4 * 86400.0, "4 d"),
    (16 * 86400.0, "16 d"),
    (64 * 86400.0, "64 d"),
    (256 * 86400.0, "256 d"),
    (1024 * 86400.0, "1024 d"),
)
_STEPS: Final = (1.0, 2.0, 2.5, 5.0, 10.0)
_UNITS: Final = (("days", 86400.0), ("hours", 3600.0), ("minutes", 60.0), ("seconds", 1.0))


@dataclass(frozen=True, slots=True)
class LinearScale:
    """From 0 to `highest`, on the pixels from `begin` to `end`."""

    highest: float
    begin: float
    end: float

    def place(self, value: float) -> float:
        return self.begin + value / (self.highest or 1.0) * (self.end - self.begin)


@dataclass(frozen=True, slots=True)
class LogScale:
    """Seconds from 1 to `highest`, by their logarithm."""

    highest: float
    begin: float
    end: float

    def place(self, value: float) -> float:
        part = math.log(max(value, 1.0)) / math.log(max(self.highest, 2.0))
        return self.begin + part * (self.end - self.begin)


def round_highest(value: float) -> float:
    """A round number that is not smaller."""
    if value <= 0:
        return 1.0
    power = 10.0 ** math.floor(math.log10(value))
    return next(step * power for step in _STEPS if step * power >= value * (1 - 1e-9))


def axis_end(value: float, most: int) -> float:
    """The end of an axis for values up to `value`: a tick, of at most this number besides 0."""
    step = round_highest(value / most)
    return max(1, math.ceil(value / step - 1e-9)) * step


def ticks(highest: float, most: int = 5) -> list[float]:
    """Round numbers from 0 to `highest`, at equal distances."""
    step = round_highest(highest / most)
    return [place * step for place in range(int(highest / step + 1e-9) + 1)]


def time_ticks(seconds: float, most: int = 8) -> tuple[str, list[tuple[float, str]]]:
    """The unit of a time axis, and its labels with their seconds."""
    unit, length = next(((unit, length) for unit, length in _UNITS if seconds >= 2 * length), _UNITS[-1])
    return unit, [(value * length, f"{value:g}") for value in ticks(seconds / length, most)]
