"""The pictures of a study, one for each question. Curves show the first seed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from pilotage.core.jobs.durations import format_duration
from pilotage.documents.scales import SECONDS_LABELS, LinearScale, LogScale, axis_end, ticks, time_ticks
from pilotage.documents.svg import COLOURS, Drawing, Point
from pilotage.twin.measures import RunMeasures, TwinCurves
from pilotage.twin.report.quantities import core_hours
from pilotage.twin.report.study import PolicyRuns, Study

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


WIDTH: Final = 860.0
GROUPS_SHOWN: Final = 12
PANELS_SHOWN: Final = 8
_NAME_WIDTH: Final = 150.0
_KINDS: Final = (("payload", "payload"), ("startup", "start-up"), ("idle", "idle"), ("lost", "lost"))
_CORES: Final = (("busy", "busy"), ("starting", "starting"), ("idle", "idle"))


@dataclass(frozen=True, slots=True)
class Picture:
    file: str
    """The name of its file."""
    drawing: Drawing


def pictures_of(study: Study) -> list[Picture]:
    """All pictures of the finished runs."""
    policies = study.finished
    if not policies:
        return []
    pictures = [Picture("waits.svg", draw_waits(policies))]
    for place, policy in enumerate(policies):
        suffix = "" if len(policies) == 1 else f"-{place + 1}"
        pictures.append(Picture(f"shares{suffix}.svg", draw_shares(policy)))
        pictures.append(Picture(f"cores{suffix}.svg", draw_cores(policy)))
    return [*pictures, Picture("pilots.svg", draw_pilots(policies))]


def _look(place: int) -> int:
    return place % COLOURS


def _cut(name: str, most: int = 22) -> str:
    return name if len(name) <= most else f"{name[: most - 1]}…"


def _legend(drawing: Drawing, y: float, names: Sequence[str], x: float = _NAME_WIDTH) -> None:
    for place, name in enumerate(names):
        drawing.rectangle(x, y - 9, 10, 10, f"f{_look(place)}")
        drawing.text(x + 15, y, _cut(name, 30))
        x += 40 + 7 * min(len(name), 30)


def draw_waits(policies: Sequence[PolicyRuns]) -> Drawing:
    """How long do jobs wait? A bar for each group and policy: 10 to 90 %, a line to 99 %, a dot at the median."""
    groups = [party.group for party in policies[0].runs[0].groups[:GROUPS_SHOWN]]
    row = 12.0 * len(policies) + 12
    top, bottom = 74.0, 74 + row * len(groups)
    drawing = Drawing(WIDTH, bottom + 44, "How long do jobs wait?")
    drawing.text(16, 26, "How long do jobs wait?", size=16, bold=True)
    drawing.text(16, 44, "bar: 10 to 90 % of a group's jobs; line: to 99 %; dot: median", look="soft")
    if len(policies) > 1:
        _legend(drawing, 62, [policy.name for policy in policies])
    waits = [party.waits[-1] for policy in policies for party in policy.runs[0].groups]
    longest = next((value for value, _ in SECONDS_LABELS if value >= max(waits)), max(waits))
    scale = LogScale(longest, _NAME_WIDTH, WIDTH - 24)
    for value, label in SECONDS_LABELS:
        if value <= longest:
            drawing.line((scale.place(value), top), (scale.place(value), bottom), "grid")
            drawing.text(scale.place(value), bottom + 18, label, anchor="middle", look="soft", size=11)
    drawing.text(WIDTH - 24, bottom + 36, "from submission to start", anchor="end", look="soft", size=11)
    for place, group in enumerate(groups):
        y = top + place * row + 12
        drawing.text(_NAME_WIDTH - 10, y + 6 * len(policies), _cut(group), anchor="end")
        for number, policy in enumerate(policies):
            party = next((party for party in policy.runs[0].groups if party.group == group), None)
            if party is not None:
                _wait_bar(drawing, scale, party.waits, y + number * 12, _look(number))
    return drawing


def _wait_bar(drawing: Drawing, scale: LogScale, waits: Sequence[float], y: float, look: int) -> None:
    low, middle, high, last = (scale.place(wait) for wait in waits)
    drawing.line((high, y), (last, y), f"s{look}")
    drawing.rectangle(low, y - 4, max(high - low, 1.5), 8, f"f{look}", opacity=0.45)
    drawing.circle(middle, y, 4, f"f{look}")


def draw_shares(policy: PolicyRuns) -> Drawing:
    """Does each group get its entitlement? A panel for each group with the most use."""
    run = policy.runs[0]
    curves = run.curves
    order = sorted(range(len(curves.groups)), key=lambda place: -sum(curves.used[place]))[:PANELS_SHOWN]
    rows = -(-len(order) // 2)
    drawing = Drawing(WIDTH, 76 + 172.0 * max(rows, 1), "Does each group get its entitlement?")
    _head(drawing, "Does each group get its entitlement?", policy, run)
    drawing.line((WIDTH - 250, 40), (WIDTH - 222, 40), "s0")
    drawing.text(WIDTH - 216, 44, "used")
    drawing.line((WIDTH - 160, 40), (WIDTH - 132, 40), "d0")
    drawing.text(WIDTH - 126, 44, "entitled")
    for number, place in enumerate(order):
        used, entitled = curves.used[place], curves.entitled[place]
        panel = Panel(
            drawing,
            left=64 + (number % 2) * (WIDTH / 2),
            top=84 + (number // 2) * 172.0,
            width=WIDTH / 2 - 92,
            height=112,
            times=curves.times,
            highest=max([*used, *entitled, 1.0]),
        )
        panel.axes(_cut(curves.groups[place], 40), "cores")
        panel.area(used, [0.0] * len(used), f"f{_look(0)}", 0.18)
        panel.curve(used, "s0")
        panel.curve(entitled, "d0")
    return drawing


def draw_cores(policy: PolicyRuns) -> Drawing:
    """The use of the cores: busy, starting and idle cores of pilots, on top of each other."""
    run = policy.runs[0]
    curves = run.curves
    drawing = Drawing(WIDTH, 330, "What do the cores do?")
    _head(drawing, "What do the cores do?", policy, run)
    _legend(drawing, 62, [label for _, label in _CORES], x=64)
    total = float(sum(ce.cores for ce in run.ces))
    stacks = _stacked(curves)
    highest = max(stacks[-1], default=0.0)
    shows_total = total <= 2 * highest
    panel = Panel(
        drawing,
        left=64,
        top=84,
        width=WIDTH - 92,
        height=196,
        times=curves.times,
        highest=max(highest, total if shows_total else 0.0, 1.0),
    )
    panel.axes("", "cores")
    for place in range(len(_CORES)):
        panel.area(stacks[place + 1], stacks[place], f"f{_look(place)}", 0.75)
    if shows_total:
        panel.limit(total, f"{total:,.0f} cores of the CEs")
    else:
        drawing.text(WIDTH - 28, 62, f"the CEs have {total:,.0f} cores", anchor="end", look="soft")
    return drawing


def _stacked(curves: TwinCurves) -> list[list[float]]:
    """The lower bound of the first area, then the upper bound of each."""
    stacks = [[0.0] * len(curves.times)]
    for name, _ in _CORES:
        stacks.append([below + own for below, own in zip(stacks[-1], getattr(curves, name), strict=True)])
    return stacks


def draw_pilots(policies: Sequence[PolicyRuns]) -> Drawing:
    """Where do the pilots' core-hours go? A bar for each policy and CE."""
    bars = [(policy, ce) for policy in policies for ce in policy.runs[0].ces]
    drawing = Drawing(WIDTH, 112 + 34.0 * len(bars), "Where do the pilots' core-hours go?")
    drawing.text(16, 26, "Where do the pilots' core-hours go?", size=16, bold=True)
    _legend(drawing, 52, [label for _, label in _KINDS])
    sums = [ce.payload + ce.startup + ce.idle + ce.lost for _, ce in bars]
    highest = axis_end(max(sums, default=0.0) / 3600, 5) * 3600
    scale = LinearScale(highest, _NAME_WIDTH, WIDTH - 70)
    bottom = 72 + 34.0 * len(bars)
    for hours in ticks(highest / 3600):
        x = scale.place(hours * 3600)
        drawing.line((x, 66), (x, bottom), "grid")
        drawing.text(x, bottom + 18, f"{hours:,.10g}", anchor="middle", look="soft", size=11)
    drawing.text(WIDTH - 70, bottom + 34, "core-hours", anchor="end", look="soft", size=11)
    for place, (policy, ce) in enumerate(bars):
        y, begin = 74 + 34.0 * place, 0.0
        name = ce.name if len(policies) == 1 else f"{policy.name}, {ce.name}"
        drawing.text(_NAME_WIDTH - 10, y + 14, _cut(name), anchor="end")
        for look, (kind, _) in enumerate(_KINDS):
            width = getattr(ce, kind)
            x = scale.place(begin)
            drawing.rectangle(x, y, scale.place(begin + width) - x, 20, f"f{look}", opacity=0.85)
            begin += width
        drawing.text(scale.place(begin) + 6, y + 14, core_hours(begin), look="soft", size=11)
    return drawing


def _head(drawing: Drawing, question: str, policy: PolicyRuns, run: RunMeasures) -> None:
    drawing.text(16, 26, question, size=16, bold=True)
    shown = f"{_cut(policy.name, 40)}, seed {run.seed}, {format_duration(run.until)}"
    drawing.text(16, 44, shown, look="soft")
