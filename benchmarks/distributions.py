"""Two distributions side by side: their Kolmogorov distance, and a picture of both."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from pilotage.core.jobs.durations import format_duration
from pilotage.documents.scales import SECONDS_LABELS, LogScale
from pilotage.documents.svg import Drawing

WIDTH, HEIGHT = 620.0, 300.0
LEFT, TOP, RIGHT, BOTTOM = 52.0, 74.0, 600.0, 250.0
POINTS = 200
QUANTILES = (0.1, 0.25, 0.5, 0.75, 0.9, 0.99)


def kolmogorov(one: Sequence[float], other: Sequence[float]) -> float:
    """The largest difference of the two empirical distribution functions, from 0 to 1."""
    first, second = np.sort(one), np.sort(other)
    values = np.concatenate([first, second])
    below = [np.searchsorted(part, values, side="right") / len(part) for part in (first, second)]
    return float(np.abs(below[0] - below[1]).max())


def told_quantiles(waits: Sequence[float]) -> str:
    values = np.quantile(waits, QUANTILES).tolist()
    return ", ".join(
        f"{100 * part:g} % {format_duration(value) if value >= 60 else f'{value:.1f} s'}"
        for part, value in zip(QUANTILES, values, strict=True)
    )


def draw_waits(title: str, note: str, waits: Mapping[str, Sequence[float]], file: Path) -> None:
    """The part of the jobs that has started within each time, a curve for each name."""
    drawing = Drawing(WIDTH, HEIGHT, title)
    drawing.text(16, 26, title, size=16, bold=True)
    drawing.text(16, 44, note, look="soft")
    longest = max(1.0, *(max(values) for values in waits.values()))
    scale = LogScale(next((value for value, _ in SECONDS_LABELS if value >= longest), longest), LEFT, RIGHT)
    for value, label in SECONDS_LABELS:
        if value <= scale.highest:
            x = scale.place(value)
            drawing.line((x, TOP), (x, BOTTOM), "grid")
            drawing.text(x, BOTTOM + 18, label, anchor="middle", look="soft", size=11)
    for percent in range(0, 101, 25):
        y = BOTTOM - (BOTTOM - TOP) * percent / 100
        drawing.line((LEFT, y), (RIGHT, y), "grid")
        drawing.text(LEFT - 6, y + 4, f"{percent} %", anchor="end", look="soft", size=11)
    drawing.text(RIGHT, BOTTOM + 36, "from submission to start", anchor="end", look="soft", size=11)
    x = LEFT
    for look, (name, values) in enumerate(waits.items()):
        parts = np.linspace(0, 1, POINTS)
        curve = zip(np.quantile(values, parts).tolist(), parts.tolist(), strict=True)
        drawing.curve(
            [(scale.place(wait), BOTTOM - (BOTTOM - TOP) * part) for wait, part in curve], f"s{look}"
        )
        drawing.line((x, 60), (x + 18, 60), f"s{look}")
        drawing.text(x + 24, 64, name)
        x += 50 + 7 * len(name)
    file.write_text(drawing.render(), encoding="utf-8")
