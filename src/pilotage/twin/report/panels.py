"""A part of a drawing with an axis of time and an axis from 0."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from pilotage.documents.scales import LinearScale, axis_end, ticks, time_ticks
from pilotage.documents.svg import Drawing, Point

_TICKS: Final = 4


class Panel:
    """Curves over the same instants."""

    def __init__(
        self,
        drawing: Drawing,
        *,
        left: float,
        top: float,
        width: float,
        height: float,
        times: Sequence[float],
        highest: float,
    ) -> None:
        self._drawing, self._times = drawing, times
        self._left, self._top, self._right, self._bottom = left, top, left + width, top + height
        self._x = LinearScale(times[-1] if times else 1.0, left, self._right)
        self._highest = axis_end(highest, _TICKS)
        self._y = LinearScale(self._highest, self._bottom, top)

    def axes(self, title: str, unit: str) -> None:
        """The title, the labels and the lines behind the curves."""
        self._drawing.text(self._left, self._top - 8, title, bold=True)
        for value in ticks(self._highest, _TICKS):
            y = self._y.place(value)
            self._drawing.line((self._left, y), (self._right, y), "grid")
            label = f"{value:,.10g}"
            self._drawing.text(self._left - 6, y + 4, label, anchor="end", look="soft", size=11)
        self._drawing.text(self._right, self._top - 8, unit, anchor="end", look="soft", size=11)
        span = self._times[-1] if self._times else 1.0
        name, labels = time_ticks(span, 8 if self._right - self._left > 500 else 5)
        for seconds, label in labels:
            x = self._x.place(seconds)
            self._drawing.line((x, self._bottom), (x, self._bottom + 4), "axis")
            self._drawing.text(x, self._bottom + 17, label, anchor="middle", look="soft", size=11)
        self._drawing.text(self._right, self._bottom + 30, name, anchor="end", look="soft", size=11)

    def curve(self, values: Sequence[float], look: str) -> None:
        self._drawing.curve(self._points(values), look)

    def area(self, upper: Sequence[float], lower: Sequence[float], look: str, opacity: float) -> None:
        self._drawing.area(self._points(upper), self._points(lower), look, opacity)

    def limit(self, value: float, label: str) -> None:
        """A line across, with its name."""
        y = self._y.place(value)
        self._drawing.line((self._left, y), (self._right, y), "limit")
        self._drawing.text(self._left, y - 4, label, look="soft", size=11)

    def _points(self, values: Sequence[float]) -> list[Point]:
        return [
            (self._x.place(time), self._y.place(value))
            for time, value in zip(self._times, values, strict=True)
        ]
