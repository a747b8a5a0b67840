"""Writes SVG: shapes with classes of one style sheet, which knows light and dark screens."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from typing import Final

Point = tuple[float, float]

LIGHT: Final = ("#2f6fde", "#d9730d", "#2a9d63", "#8b5cf6", "#d64545", "#0d9aa8", "#a07c00", "#c2489b")
DARK: Final = ("#7aa7ff", "#ffa657", "#56d391", "#b69cff", "#ff8080", "#4fd0dc", "#e0bd4d", "#f08cc8")
COLOURS: Final = len(LIGHT)


def style_sheet() -> str:
    """The rules of all drawings. Programs that do not know dark screens show the light colours."""
    light = _rules("#ffffff", "#1f2328", "#667085", "#e4e7ec", LIGHT)
    return f"{light}@media (prefers-color-scheme: dark) {{{_rules('#14171c', '#e6e8eb', '#98a2b3', '#30363d', DARK)}}}"


def _rules(paper: str, ink: str, soft: str, grid: str, colours: Sequence[str]) -> str:
    rules = [
        f".paper{{fill:{paper}}}",
        f".ink{{fill:{ink}}}",
        f".soft{{fill:{soft}}}",
        f".grid{{stroke:{grid};stroke-width:1}}",
        f".axis{{stroke:{soft};stroke-width:1}}",
        f".limit{{stroke:{ink};stroke-width:1.2;stroke-dasharray:2 3;fill:none}}",
    ]
    for number, colour in enumerate(colours):
        rules.append(f".f{number}{{fill:{colour}}}")
        rules.append(f".s{number}{{stroke:{colour};stroke-width:1.6;fill:none;stroke-linejoin:round}}")
        rules.append(f".d{number}{{stroke:{ink};stroke-width:1.3;fill:none;stroke-dasharray:5 3}}")
    return "".join(rules)


class Drawing:
    """One picture. Sizes are CSS pixels; (0, 0) is the upper left corner."""

    def __init__(self, width: float, height: float, title: str) -> None:
        self.width, self.height, self.title = width, height, title
        self._parts: list[str] = []

    def text(
        self,
        x: float,
        y: float,
        text: str,
        *,
        anchor: str = "start",
        look: str = "ink",
        size: float = 12,
        bold: bool = False,
    ) -> None:
        weight = ' font-weight="600"' if bold else ""
        self._parts.append(
            f'<text x="{_number(x)}" y="{_number(y)}" font-size="{_number(size)}" text-anchor="{anchor}"'
            f'{weight} class="{look}">{escape(text)}</text>'
        )

    def line(self, start: Point, end: Point, look: str) -> None:
        (x1, y1), (x2, y2) = start, end
        self._parts.append(
            f'<line x1="{_number(x1)}" y1="{_number(y1)}" x2="{_number(x2)}" y2="{_number(y2)}" class="{look}"/>'
        )

    def rectangle(
        self, x: float, y: float, width: float, height: float, look: str, opacity: float = 1
    ) -> None:
        self._parts.append(
            f'<rect x="{_number(x)}" y="{_number(y)}" width="{_number(max(width, 0))}"'
            f' height="{_number(height)}" class="{look}"{_opacity(opacity)}/>'
        )

    def circle(self, x: float, y: float, radius: float, look: str) -> None:
        self._parts.append(
            f'<circle cx="{_number(x)}" cy="{_number(y)}" r="{_number(radius)}" class="{look}"/>'
        )

    def curve(self, points: Iterable[Point], look: str) -> None:
        if path := _path(points):
            self._parts.append(f'<path d="{path}" class="{look}"/>')

    def area(self, upper: Sequence[Point], lower: Sequence[Point], look: str, opacity: float = 1) -> None:
        if path := _path([*upper, *reversed(lower)]):
            self._parts.append(f'<path d="{path}Z" class="{look}"{_opacity(opacity)}/>')

    def render(self) -> str:
        """The picture as text, with its style sheet: the same for a file and inside a page."""
        size = f'width="{_number(self.width)}" height="{_number(self.height)}"'
        view = f'viewBox="0 0 {_number(self.width)} {_number(self.height)}"'
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" {size} {view} role="img"'
            ' font-family="system-ui, -apple-system, Segoe UI, Helvetica, Arial, sans-serif">'
            f"<title>{escape(self.title)}</title><style>{style_sheet()}</style>"
            f'<rect width="100%" height="100%" class="paper"/>{"".join(self._parts)}</svg>\n'
        )


def _path(points: Iterable[Point]) -> str:
    return "".join(
        f"{'M' if place == 0 else 'L'}{_number(x)} {_number(y)}" for place, (x, y) in enumerate(points)
    )


def _opacity(value: float) -> str:
    return "" if value >= 1 else f' fill-opacity="{_number(value)}"'


def _number(value: float) -> str:
    return f"{value:.1f}".removesuffix(".0")
