"""The attempts of a report as one drawing: few one by one, many as the number that runs at each instant."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Final

from pilotage.documents.scales import LinearScale, axis_end, ticks, time_ticks
from pilotage.documents.svg import Drawing
from pilotage.report.figures import KIND_NAMES, LABELS, Timeline

WIDTH: Final = 860.0
LEFT: Final = 90.0
TOP: Final = 64.0
ROW: Final = 12.0
HEIGHT: Final = 220.0
STEPS: Final = 240
"""Intervals of the drawing of many attempts."""
_LOOKS: Final = (2, 4, 1, 0)
"""The colour of each kind: green, red, orange, blue."""
TITLE: Final = "Attempts by time"


def draw_timeline(line: Timeline) -> Drawing | None:
    """None: there is no attempt."""
    if not line.kinds:
        return None
    begin, end = min(line.started), max(line.ended)
    span = max(end - begin, 1.0)
    if len(line.kinds) <= LABELS:
        height = ROW * len(line.kinds)
        drawing, scale = _frame(line, begin, span, height)
        for place, kind in enumerate(line.kinds):
            y = TOP + place * ROW
            left, right = scale.place(line.started[place] - begin), scale.place(line.ended[place] - begin)
            drawing.rectangle(left, y + 2, max(right - left, 1.5), ROW - 3, f"f{_LOOKS[kind]}")
            drawing.text(LEFT - 8, y + 10, line.labels[place], anchor="end", look="soft", size=10)
        return drawing
    drawing, scale = _frame(line, begin, span, HEIGHT)
    _stack(drawing, line, begin, span)
    return drawing


def _frame(line: Timeline, begin: float, span: float, height: float) -> tuple[Drawing, LinearScale]:
    """The drawing with its head, its legend and its axis of time."""
    drawing = Drawing(WIDTH, TOP + height + 48, sentence(line))
    drawing.text(16, 24, TITLE, size=16, bold=True)
    x = LEFT
    for kind, name in enumerate(KIND_NAMES):
        count = line.kinds.count(kind)
        if count:
            drawing.rectangle(x, 36, 10, 10, f"f{_LOOKS[kind]}")
            label = f"{count:,} {name}"
            drawing.text(x + 15, 45, label)
            x += 40 + 7 * len(label)
    scale, bottom = LinearScale(span, LEFT, WIDTH - 24), TOP + height
    unit, labels = time_ticks(span)
    for seconds, label in labels:
        drawing.line((scale.place(seconds), TOP), (scale.place(seconds), bottom), "grid")
        drawing.text(scale.place(seconds), bottom + 16, label, anchor="middle", look="soft", size=11)
    first = datetime.fromtimestamp(begin, UTC)
    words = f"{unit} since {first:%Y-%m-%d %H:%M:%S} UTC"
    drawing.text(WIDTH - 24, bottom + 36, words, anchor="end", look="soft", size=11)
    return drawing, scale


def _stack(drawing: Drawing, line: Timeline, begin: float, span: float) -> None:
    """Areas above each other: the average number of attempts of each kind that ran in each interval."""
    averages = running_averages(line, begin, span)
    highest = axis_end(max(map(sum, zip(*averages, strict=True))), 4)
    upward = LinearScale(highest, TOP + HEIGHT, TOP)
    across = LinearScale(STEPS, LEFT, WIDTH - 24)
    for value in ticks(highest, 4):
        drawing.line((LEFT, upward.place(value)), (WIDTH - 24, upward.place(value)), "grid")
        drawing.text(LEFT - 8, upward.place(value) + 4, f"{value:,g}", anchor="end", look="soft", size=11)
    below = [0.0] * STEPS
    for kind, counts in enumerate(averages):
        above = [low + count for low, count in zip(below, counts, strict=True)]
        if any(counts):
            upper = [
                (across.place(step + side), upward.place(above[step]))
                for step in range(STEPS)
                for side in (0, 1)
            ]
            lower = [
                (across.place(step + side), upward.place(below[step]))
                for step in range(STEPS)
                for side in (0, 1)
            ]
            drawing.area(upper, lower, f"f{_LOOKS[kind]}", opacity=0.85)
        below = above


def running_averages(line: Timeline, begin: float, span: float) -> list[list[float]]:
    """For each kind, the average number of attempts that ran in each of STEPS intervals.

    Their sum by the length of an interval is the wall time of all attempts.
    """
    length = span / STEPS
    rises = [[0.0] * (STEPS + 2) for _ in KIND_NAMES]
    for started, ended, kind in zip(line.started, line.ended, line.kinds, strict=True):
        _add_span(rises[kind], (started - begin) / length, (ended - begin) / length)
    averages = []
    for rise in rises:
        level, counts = 0.0, []
        for step in range(STEPS):
            level += rise[step]
            counts.append(max(0.0, level))
        averages.append(counts)
    return averages


def _add_span(rise: list[float], first: float, last: float) -> None:
    """Add an attempt from `first` to `last`, in intervals, as changes of the level from one interval to the next."""
    for at, sign in ((first, 1.0), (last, -1.0)):
        step = min(int(at), STEPS)
        part = at - step
        rise[step] += sign * (1 - part)
        rise[step + 1] += sign * part


def sentence(line: Timeline) -> str:
    """The contents of the drawing, for readers who do not see it."""
    counts = [
        f"{line.kinds.count(kind):,} {name}" for kind, name in enumerate(KIND_NAMES) if kind in line.kinds
    ]
    return f"{TITLE}: {', '.join(counts)}"
