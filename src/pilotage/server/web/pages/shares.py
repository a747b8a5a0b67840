"""Pages: shares of groups, and of the owners of one group: entitled, used and corrected, now and over time."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import NamedTuple
from urllib.parse import urlencode

from starlette.responses import Response

from pilotage.core.errors import InvalidInput, NotFound
from pilotage.server.web.charts import TONES, Chart, ChartBar, ChartPart
from pilotage.server.web.page import PageRouter
from pilotage.server.web.visit import Visit
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

PERIODS = {"hour": 3600.0, "day": 86400.0, "week": 7 * 86400.0}
POINTS = {"hour": 12, "day": 24, "week": 7}
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
    used = await visit.ask(USE, UseQuery(_since(visit), POINTS[_period(visit)]))
    return await visit.render_charts(
        "shares.html",
        use_chart(used, lambda point: point.group, "Group"),
        lines=lines_of(table, report, ""),
        table=table,
        report=report,
        period=_period(visit),
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
    used = await visit.ask(USE, UseQuery(_since(visit), POINTS[_period(visit)], group))
    return await visit.render_charts(
        "share_group.html",
        use_chart(used, lambda point: point.owner or OTHERS, "Owner"),
        group=group,
        own=own,
        lines=lines_of(table, report, group),
        report=report,
        period=_period(visit),
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
        bars.append(ChartBar(_time(report, place), values))
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


def _time(report: UseReport, place: int) -> str:
    at = datetime.fromtimestamp(report.begin + place * report.span, UTC)
    return at.strftime("%H:%M" if report.end - report.begin <= 86400 else "%Y-%m-%d %H:%M")


def _period(visit: Visit) -> str:
    period = visit.query.get("period", "day")
    if period not in PERIODS:
        raise InvalidInput("there is no such period", hint=", ".join(PERIODS))
    return period


def _since(visit: Visit) -> float:
    """The seconds of the period, or the whole history of use if it is shorter."""
    return min(PERIODS[_period(visit)], visit.context.pool.policy.accounting.history)
