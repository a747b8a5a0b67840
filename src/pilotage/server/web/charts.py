"""Charts: stacked bars that the server draws, in a table with the same numbers."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from pilotage.server.web import formats

TONES = ("busy", "stopped", "teal", "violet", "good", "pink", "olive", "bad", "dim")
"""The colours of parts, as classes of the style sheet."""
WIDEST = 100.0
_FORMULA = ("=", "+", "-", "@", "\t", "\r")
"""A spreadsheet takes a cell that begins with one of these for a formula."""


@dataclass(frozen=True, slots=True)
class ChartPart:
    """A part of each bar."""

    words: str
    tone: str
    address: str = ""
    """A page about it, relative to the first page."""


@dataclass(frozen=True, slots=True)
class ChartBar:
    """One row: a bar of all parts."""

    label: str
    values: Sequence[float]
    """One for each part."""
    address: str = ""
    """A page about it, relative to the first page."""
    note: str = ""

    @property
    def total(self) -> float:
        return sum(self.values)


@dataclass(frozen=True, slots=True)
class Segment:
    """A drawn part of a bar, in hundredths of the longest bar."""

    part: ChartPart
    value: float
    begin: float
    width: float


@dataclass(frozen=True, slots=True)
class Chart:
    """Bars whose parts and totals are the numbers of their table."""

    name: str
    """In the address of its CSV file."""
    title: str
    of: str
    """The meaning of a row."""
    unit: str
    """The noun of the numbers, for one; empty: `amount` writes it."""
    parts: Sequence[ChartPart]
    bars: Sequence[ChartBar]
    amount: Callable[[float], str] = field(default=formats.count)
    """How a number is written."""
    note: str = ""
    summed: bool = True
    """Whether the bars add up to something: parts of a period do not."""

    @property
    def totals(self) -> list[float]:
        """The sum of each part."""
        return [sum(bar.values[place] for bar in self.bars) for place in range(len(self.parts))]

    @property
    def total(self) -> float:
        return sum(bar.total for bar in self.bars)

    @property
    def sentence(self) -> str:
        """The chart in words, for everybody who does not see it."""
        if not self.total:
            return f"No {self.unit}s." if self.unit else "Nothing."
        totals = self.totals
        most = max(range(len(totals)), key=totals.__getitem__)
        number = self.total if self.summed else self.total / len(self.bars)
        nouns = f" {self.unit}{'' if number == 1 else 's'}" if self.unit else ""
        words = f"{self.amount(number)}{nouns}{'' if self.summed else ' on average'}"
        if len(self.parts) > 1:
            words += f"; the largest part is {self.parts[most].words}, {totals[most] / self.total:.0%}"
        if len(self.bars) > 1:
            longest = max(self.bars, key=lambda bar: bar.total)
            words += f"; the most are at {longest.label}, {self.amount(longest.total)}"
        return words + "."

    def _segments(self, bar: ChartBar, longest: float) -> list[Segment]:
        """The drawn parts of a bar, without empty ones."""
        begin, drawn = 0.0, list[Segment]()
        for part, value in zip(self.parts, bar.values, strict=True):
            width = value / longest * WIDEST
            if value > 0:
                drawn.append(Segment(part, value, round(begin, 4), round(width, 4)))
            begin += width
        return drawn

    @property
    def drawn(self) -> list[tuple[ChartBar, list[Segment]]]:
        """All bars with their parts."""
        longest = max((bar.total for bar in self.bars), default=0.0) or 1.0
        return [(bar, self._segments(bar, longest)) for bar in self.bars]

    def as_csv(self) -> str:
        """The numbers of the chart, as they are and without totals."""
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow([self.of, *(_cell(part.words) for part in self.parts)])
        writer.writerows([_cell(bar.label), *bar.values] for bar in self.bars)
        return text.getvalue()


def _cell(text: str) -> str:
    """A text as a cell that no spreadsheet takes for a formula."""
    return f"'{text}" if text.startswith(_FORMULA) else text
