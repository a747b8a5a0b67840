"""Charts: what is drawn, what the table says and what the CSV file has are the same numbers."""

from __future__ import annotations

import csv
import io
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pilotage.server.web.assets import Assets
from pilotage.server.web.charts import TONES, WIDEST, Chart, ChartBar, ChartPart
from pilotage.server.web.pages.ces import cost_chart
from pilotage.server.web.pages.datasets import places_chart
from pilotage.server.web.pages.requests import funnel_chart, requests_chart, sites_chart
from pilotage.server.web.pages.shares import (
    MOST_PARTS,
    VALUES,
    corrected_chart,
    use_chart,
    values_of_interval,
    values_over_time,
)
from pilotage.server.web.pages.waiting import (
    WORDS,
    history_chart,
    history_of_reasons,
    interval_chart,
    waiting_chart,
)
from pilotage.server.web.rendering import make_templates
from pilotage.server.web.request_verbs import possible_verbs
from pilotage.wire.costs import CostReport, CostRow
from pilotage.wire.datasets import DataSetSite
from pilotage.wire.intervals import ShareHistory, SharePoint, WaitingHistory, WaitingPoint
from pilotage.wire.pool import WaitingJobs
from pilotage.wire.requests import RequestSite, RequestStep, RequestSummary
from pilotage.wire.shares import UsePoint, UseReport
from pilotage.wire.why import Waited

COUNTS = st.integers(0, 10**9)
NAMES = st.sampled_from(["alpha", "beta", "<b>gamma", "=1+1", "\u202edelta", ""])


@st.composite
def charts(draw: st.DrawFn) -> Chart:
    parts = [
        ChartPart(f"part {number}", TONES[number % len(TONES)]) for number in range(draw(st.integers(1, 12)))
    ]
    rows = draw(
        st.lists(st.tuples(NAMES, st.lists(COUNTS, min_size=len(parts), max_size=len(parts))), max_size=6)
    )
    return Chart("drawn", "Drawn", "Row", "thing", parts, [ChartBar(name, values) for name, values in rows])


@given(charts())
def test_the_parts_that_are_drawn_add_up_to_the_table_and_the_csv_file(chart: Chart) -> None:
    longest = max((bar.total for bar in chart.bars), default=0)
    assert [bar for bar, _ in chart.drawn] == list(chart.bars)
    for bar, drawn in chart.drawn:
        assert sum(segment.value for segment in drawn) == bar.total
        scale = WIDEST / longest if longest else 0.0
        assert sum(segment.width for segment in drawn) == pytest.approx(bar.total * scale, abs=0.01)
        assert all(segment.begin + segment.width <= WIDEST + 0.01 for segment in drawn)
    assert sum(chart.totals) == chart.total == sum(bar.total for bar in chart.bars)
    [head, *rows] = csv.reader(io.StringIO(chart.as_csv()))
    assert len(head) == len(chart.parts) + 1
    assert sum(int(cell) for row in rows for cell in row[1:]) == chart.total
    assert not any(cell.startswith("=") for row in rows for cell in row)


@given(charts())
def test_a_chart_is_a_table_for_those_who_do_not_see_it(chart: Chart) -> None:
    drawn = make_templates(Assets()).get_template("charts.html").module
    shown = str(drawn.chart(chart, "./", "page?csv="))  # type: ignore[attr-defined]
    assert "<b>gamma" not in shown
    assert "style=" not in shown
    assert chart.sentence.split(";")[0].rstrip(".") in shown
    if chart.bars:
        assert shown.count('<th scope="row">') == len(chart.bars) + (len(chart.bars) > 1)
        assert shown.count("<rect") == sum(value > 0 for bar in chart.bars for value in bar.values)
    else:
        assert "nothing to show" in shown


@given(st.lists(st.tuples(st.sampled_from(list(WORDS)), NAMES, COUNTS), unique_by=lambda row: row[:2]))
def test_the_chart_of_waiting_jobs_has_all_of_them(rows: list[tuple[str, str, int]]) -> None:
    waiting = [WaitingJobs(str(reason), group, 1, jobs) for reason, group, jobs in rows]
    assert waiting_chart(waiting).total == sum(row.jobs for row in waiting)


@given(
    st.lists(
        st.tuples(st.integers(0, 3), NAMES, st.sampled_from([*WORDS, "new-reason"]), st.floats(0.01, 1e6)),
        unique_by=lambda row: row[:3],
    ),
    st.integers(0, 3),
)
def test_the_charts_of_earlier_reasons_have_all_jobs_of_the_recorded_time(
    rows: list[tuple[int, str, str, float]], down: int
) -> None:
    points = [
        WaitingPoint(at * 600.0, group, str(reason), jobs) for at, group, reason, jobs in rows if at != down
    ]
    recorded = [0.0 if at == down else 60.0 for at in range(4)]
    chart = history_of_reasons(WaitingHistory(0.0, 2400.0, 600.0, recorded, points))
    assert chart.total == pytest.approx(sum(point.jobs for point in points))
    assert [bar.label for bar in chart.bars] == [f"00:{at}0" for at in range(4) if at != down]
    assert all(bar.address.startswith("waiting/interval?begin=") for bar in chart.bars)
    assert (
        len({part.words for part in chart.parts}) == len(chart.parts) == len({row.reason for row in points})
    )
    first = [point for point in points if not point.begin]
    chart = interval_chart(WaitingHistory(0.0, 600.0, 600.0, [60.0], first))
    assert chart.total == pytest.approx(sum(point.jobs for point in first))


@given(st.lists(st.tuples(NAMES, *[st.floats(0, 1e9)] * 4), unique_by=lambda row: row[0]))
def test_the_chart_of_costs_has_all_core_seconds(rows: list[tuple[str, float, float, float, float]]) -> None:
    costs = [CostRow(row[0], *row[1:5], sum(row[1:5]), None) for row in rows]
    chart = cost_chart(CostReport(0, 1, "ce", costs, CostRow("", 0, 0, 0, 0, 0, None)), "CE")
    assert chart.total == pytest.approx(sum(row.total for row in costs))


@given(st.lists(st.tuples(COUNTS, COUNTS, COUNTS, COUNTS)))
def test_the_charts_of_a_request_have_all_of_its_jobs(rows: list[tuple[int, int, int, int]]) -> None:
    assert sites_chart([RequestSite("s", *row) for row in rows]).total == sum(map(sum, rows))
    steps = [
        RequestStep(
            0, "s", "", "", "", "", "",
            jobs={"made": made, "done": done}, pool={"Running": running}, estimated_jobs=planned,
        )
        for made, done, running, planned in rows
    ]  # fmt: skip
    assert funnel_chart(steps).total == sum(map(sum, rows))
    requests = [
        RequestSummary(
            1, "n", "o", "g", 0, "", "", "acquired", "", 0.0, 0.0,
            jobs=done + failed + left, done_jobs=done, failed_jobs=failed,
        )
        for done, failed, left, _ in rows
    ]  # fmt: skip
    assert requests_chart(requests).total == sum(request.jobs for request in requests)


@given(
    st.lists(
        st.tuples(st.integers(0, 3), st.integers(0, 30), st.floats(0, 1e6)), unique_by=lambda row: row[:2]
    )
)
def test_the_chart_of_use_has_the_use_of_all_also_of_those_without_a_colour(
    rows: list[tuple[int, int, float]],
) -> None:
    points = [UsePoint(at * 60.0, at * 60.0 + 60, "", f"g{group}", jobs, jobs) for at, group, jobs in rows]
    chart = use_chart(UseReport(0.0, 240.0, 60.0, points), lambda point: point.group, "Group")
    assert chart.total == pytest.approx(sum(point.jobs for point in points))
    assert len(chart.parts) <= MOST_PARTS + 1
    assert len(chart.bars) == (4 if points else 0)


PARTS = st.floats(0, 1)


@given(
    st.lists(st.tuples(st.integers(0, 2), st.integers(0, 20), *[PARTS] * 4), unique_by=lambda row: row[:2])
)
def test_the_charts_of_shares_over_time_have_all_groups(
    rows: list[tuple[int, int, float, float, float, float]],
) -> None:
    points = [SharePoint(at * 3600.0, "", f"<g{group}>", *values) for at, group, *values in rows]
    history = ShareHistory(0.0, 10800.0, 3600.0, [60.0, 60.0, 60.0], points)
    chart = corrected_chart(history, "Group")
    assert chart.total == pytest.approx(sum(point.corrected for point in points))
    assert len(chart.bars) == 3
    assert len(chart.parts) <= MOST_PARTS + 1
    shown = make_templates(Assets()).get_template("share_lines.html").module
    first = [point for point in points if point.group == "<g0>"]
    now = [point for point in points if not point.begin]
    for values, expected in (
        (values_over_time(history, "<g0>"), sorted(first, key=lambda point: point.begin)),
        (values_of_interval(ShareHistory(0.0, 3600.0, 3600.0, [60.0], now), ""), now),
    ):
        [head, *lines] = csv.reader(io.StringIO(values.as_csv()))
        assert tuple(head[1:]) == VALUES
        assert [tuple(map(float, line[1:])) for line in lines] == [
            (point.entitled, point.used, point.correction, point.corrected) for point in expected
        ]
        table = str(shown.values(values, "./", "page?csv="))  # type: ignore[attr-defined]
        assert "<g" not in table
        assert table.count('<th scope="row">') == len(expected)
        assert all(f"{point.corrected:.1%}" in table for point in expected)
        assert ("Nothing is recorded" in table) is (not expected)


def test_the_chart_of_a_queue_has_the_time_of_each_reason() -> None:
    history = [Waited("needs", "", 0, 100), Waited("", "", 100, 200), Waited("slots", "", 200, None)]
    assert history_chart(history, 250).total == 150


def test_the_chart_of_a_data_set_has_its_blocks() -> None:
    chart = places_chart([DataSetSite("a", 2, 10, 100), DataSetSite("b", 1, 5, 50)])
    assert (chart.total, chart.sentence) == (3, "3 blocks; the most are at a, 2.")


def test_an_empty_chart_says_so() -> None:
    chart = waiting_chart([])
    assert (chart.sentence, chart.total) == ("No waiting jobs.", 0)


def test_a_verb_of_a_request_is_offered_only_where_it_is_possible() -> None:
    request = RequestSummary(1, "n", "o", "g", 0, "", "", "running-open", "", 0.0, 0.0)
    user = SimpleNamespace(properties=frozenset({"NORMAL_USER"}))
    manager = SimpleNamespace(properties=frozenset({"PRODUCTION_MANAGEMENT"}))
    of_user = possible_verbs(request, user)  # type: ignore[arg-type]
    assert list(of_user) == ["pause", "priority", "force-complete", "abort"]
    assert "assign" in possible_verbs(request, manager)  # type: ignore[arg-type]
