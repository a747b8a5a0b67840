"""Pages: shares of groups, and of the owners of one group: entitled, used and corrected, now and over time."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple
from urllib.parse import urlencode

from starlette.responses import Response

from pilotage.core.errors import NotFound
from pilotage.server.web import formats
from pilotage.server.web.charts import TONES, Chart, ChartBar, ChartPart
from pilotage.server.web.page import PageRouter
from pilotage.server.web.periods import PERIODS, interval_of, part_label, period_name, utc_words
from pilotage.server.web.visit import Visit
from pilotage.wire.intervals import SHARE_HISTORY, ShareHistory, ShareHistoryQuery, SharePoint
from pilotage.wire.shares import (
    FAIRNESS,
    SHARES,
    USE,
    FairnessQuery,
    FairnessReport,
    FairnessRow,
    ShareRow,
    ShareTable,
    UsePoint,
    UseQuery,
    UseReport,
)

pages = PageRouter(menu="Shares", order=4)

POINTS = {"hour": 12, "day": 24, "week": 7, "month": 15, "year": 13}
"""Parts of each period, for use: its times are shorter than the intervals of shares."""
MOST_PARTS = len(TONES) - 1
"""Entities with a colour of their own; the others are one part."""
OTHERS = "others"


class ShareLine(NamedTuple):
    """A group or an owner: its row of the shares now, and of the period; None: it has none."""

    name: str
    now: ShareRow | None
    period: FairnessRow | None


@pages.get("/shares")
async def show(visit: Visit) -> Response:
    """The groups: entitled, used and corrected, and their running jobs over time."""
    table, report = await visit.ask(SHARES), await visit.ask(FAIRNESS, FairnessQuery(_since(visit)))
    period = period_name(visit)
    used = await visit.ask(USE, UseQuery(_since(visit), POINTS[period]))
    history = await _history(visit)
    return await visit.render_charts(
        "shares.html",
        corrected_chart(history, "Group"),
        use_chart(used, lambda point: point.group, "Group"),
        lines=lines_of(table, report, ""),
        table=table,
        report=report,
        period=period,
        periods=list(PERIODS),
    )


@pages.get("/shares/group")
async def show_group(visit: Visit) -> Response:
    """One group: the spans that its corrections look back on, its owners, and their running jobs over time."""
    group = visit.query.get("name", "")
    table, report = await visit.ask(SHARES), await visit.ask(FAIRNESS, FairnessQuery(_since(visit)))
    own = next((row for row in table.rows if row.group == group and not row.owner), None)
    if own is None:
        raise NotFound(f"there is no group {group[:40]}")
    period = period_name(visit)
    used = await visit.ask(USE, UseQuery(_since(visit), POINTS[period], group))
    groups, owners = await _history(visit), await _history(visit, group)
    return await visit.render_charts(
        "share_group.html",
        values_over_time(groups, group),
        corrected_chart(owners, "Owner", group),
        use_chart(used, lambda point: point.owner or OTHERS, "Owner"),
        group=group,
        own=own,
        lines=lines_of(table, report, group),
        report=report,
        period=period,
        periods=list(PERIODS),
        query=urlencode({"name": group}),
    )


def lines_of(table: ShareTable, report: FairnessReport, group: str) -> list[ShareLine]:
    """The groups, or the owners of one, that have a share now or have used something in the period."""

    def name_of(row: ShareRow | FairnessRow) -> str:
        if group:
            return row.owner if row.group == group else ""
        return "" if row.owner else row.group

    now = {name_of(row): row for row in table.rows}
    period = {name_of(row): row for row in report.rows}
    names = sorted((now.keys() | period.keys()) - {""})
    return [ShareLine(name, now.get(name), period.get(name)) for name in names]


def use_chart(report: UseReport, name_of: Callable[[UsePoint], str], of: str) -> Chart:
    """Average running jobs: a bar for each part of the period, a part for each group or owner."""
    sums = dict[str, float]()
    times: list[dict[str, float]] = [{} for _ in range(round((report.end - report.begin) / report.span))]
    for point in report.points:
        name, there = name_of(point), times[round((point.begin - report.begin) / report.span)]
        sums[name] = sums.get(name, 0.0) + point.jobs
        there[name] = there.get(name, 0.0) + point.jobs
    own = sorted((name for name in sums if name != OTHERS), key=lambda name: (-sums[name], name))[:MOST_PARTS]
    rest = len(sums) > len(own)
    parts = [ChartPart(name, TONES[place]) for place, name in enumerate(own)]
    bars = []
    for place, there in enumerate(times if sums else []):
        values = [there.get(name, 0.0) for name in own]
        if rest:
            values.append(sum(there.values()) - sum(values))
        begin = report.begin + place * report.span
        bars.append(ChartBar(part_label(begin, report.span, report.end - report.begin), values))
    return Chart(
        "use",
        f"Running jobs over time, by {of.lower()}",
        "From (UTC)",
        "running job",
        [*parts, ChartPart(OTHERS, "dim")] if rest else parts,
        bars,
        amount=lambda number: f"{number:,.2f}",
        summed=False,
    )


def corrected_chart(history: ShareHistory, of: str, group: str = "") -> Chart:
    """Shares after correction: a bar for each recorded part of the period, a part for each group or owner."""
    times, sums = dict[float, dict[str, float]](), dict[str, float]()
    for point in history.points:
        name = point.owner or point.group
        times.setdefault(point.begin, {})[name] = point.corrected
        sums[name] = sums.get(name, 0.0) + point.corrected
    own = sorted(sums, key=lambda name: (-sums[name], name))[:MOST_PARTS]
    rest, bars = len(sums) > len(own), list[ChartBar]()
    for begin, label, address in _recorded_parts(history, group):
        there = times.get(begin, {})
        values = [there.get(name, 0.0) for name in own]
        bars.append(
            ChartBar(
                label, [*values, max(0.0, sum(there.values()) - sum(values))] if rest else values, address
            )
        )
    parts = [ChartPart(name, TONES[place]) for place, name in enumerate(own)]
    return Chart(
        "corrected",
        f"Corrected shares over time, by {of.lower()}",
        "From (UTC)",
        "",
        [*parts, ChartPart(OTHERS, "dim")] if rest else parts,
        bars,
        amount=formats.percent,
        note="Parts of the whole after correction. Times in which no server ran have no row.",
        summed=False,
    )


def _recorded_parts(history: ShareHistory, group: str) -> Iterator[tuple[float, str, str]]:
    """The begin, the label and the page of each part of which something is recorded."""
    for place, seconds in enumerate(history.recorded):
        if seconds:
            begin = history.begin + place * history.span
            asked = {"begin": f"{begin:.0f}", "end": f"{begin + history.span:.0f}"}
            address = f"shares/interval?{urlencode({**asked, 'name': group} if group else asked)}"
            yield begin, part_label(begin, history.span, history.end - history.begin), address


VALUES = ("Entitled", "Used", "Correction", "Corrected")


def values_over_time(history: ShareHistory, group: str) -> Chart:
    """The values of one group: a row for each part of the period in which it has some."""
    points = {point.begin: point for point in history.points if point.group == group}
    return _values(
        "From (UTC)",
        "Entitled, used and corrected over time",
        (
            (label, address, points[begin])
            for begin, label, address in _recorded_parts(history, "")
            if begin in points
        ),
    )


def values_of_interval(history: ShareHistory, group: str) -> Chart:
    """The values of all groups, or of the owners of one, in one part of a period."""
    rows = (
        (
            point.owner or point.group,
            "" if group else f"shares/group?{urlencode({'name': point.group})}",
            point,
        )
        for point in history.points
    )
    return _values("Owner" if group else "Group", "Entitled, used and corrected", rows)


def _values(of: str, title: str, rows: Iterable[tuple[str, str, SharePoint]]) -> Chart:
    """Rows of values that are compared, and not stacked (`templates/share_lines.html`)."""
    bars = [
        ChartBar(label, (point.entitled, point.used, point.correction, point.corrected), address)
        for label, address, point in rows
    ]
    return Chart("values", title, of, "", [ChartPart(name, "busy") for name in VALUES], bars)


@pages.get("/shares/interval")
async def show_interval(visit: Visit) -> Response:
    """The values behind one part of a period: of all groups, or of the owners of one."""
    begin, end = interval_of(visit)
    group = visit.query.get("name", "")
    asked = ShareHistoryQuery(since=float(end - begin), end=float(end), points=1, group=group)
    history = await visit.ask(SHARE_HISTORY, asked)
    return await visit.render_charts(
        "share_interval.html",
        values_of_interval(history, group),
        group=group,
        begin=utc_words(history.begin),
        end=utc_words(history.end),
    )


async def _history(visit: Visit, group: str = "") -> ShareHistory:
    period = PERIODS[period_name(visit)]
    return await visit.ask(SHARE_HISTORY, ShareHistoryQuery(period.seconds, None, period.parts, group))


def _since(visit: Visit) -> float:
    """The seconds of the period, or the whole history of use if it is shorter."""
    return min(PERIODS[period_name(visit)].seconds, visit.context.pool.policy.accounting.history)
