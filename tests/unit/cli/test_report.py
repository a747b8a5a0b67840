"""The figures, the timeline and the HTML file of `pilotage report`."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pilotage.report.figures import (
    DONE,
    FAILED,
    LABELS,
    RUNNING,
    WITHOUT_RESULT,
    AttemptSums,
    FailureCause,
    WorkReport,
    kind_of,
)
from pilotage.report.page import page_of
from pilotage.report.tables import MOST_ROWS, accounts_table, places_table, states_table
from pilotage.report.timeline import STEPS, draw_timeline, running_averages
from pilotage.wire.attempts import JobAttempt
from pilotage.wire.shares import AccountRow
from tests.unit.cli.conftest import Cli
from tests.unit.client.fake_server import State

NOW = 2000.0
HOSTILE = (
    "<script>alert(1)</script>",
    "\u202etxt.exe\u202c \u2067rtl",
    "x" * 4096,
    "\N{PILE OF POO} 'quoted\" & <b>",
)


def attempt(**facts: Any) -> JobAttempt:
    usual: dict[str, Any] = {
        "job": 1, "attempt": 1, "site": "here", "ce": "local", "started": 1000.0, "ended": 1010.0,
        "outcome": "applied", "exit_code": 0, "failure": "", "wall": 10.0, "cpu": 5.0, "processors": 1,
    }  # fmt: skip
    return JobAttempt(**{**usual, **facts})


@pytest.mark.parametrize(
    ("facts", "kind"),
    [
        ({}, DONE),
        ({"exit_code": 3}, FAILED),
        ({"failure": "memory", "outcome": "retried"}, FAILED),
        ({"outcome": "lease over", "exit_code": None}, WITHOUT_RESULT),
        ({"ended": None, "outcome": ""}, RUNNING),
    ],
)
def test_each_attempt_is_of_one_kind(facts: dict[str, Any], kind: int) -> None:
    assert kind_of(attempt(**facts)) == kind


spans = st.tuples(
    st.floats(0, 1e6), st.floats(0, 1e5), st.sampled_from(["applied", "killed"]), st.integers(1, 8)
)


@given(st.lists(st.tuples(st.sampled_from("abc"), spans), min_size=1, max_size=100))
def test_the_drawing_and_the_table_add_up_to_the_attempts(rows: list[Any]) -> None:
    sums = AttemptSums(NOW)
    for site, (started, wall, outcome, cores) in rows:
        ended = started + wall
        sums.add(
            attempt(
                site=site,
                started=started,
                ended=ended,
                wall=ended - started,
                outcome=outcome,
                processors=cores,
            )
        )
    total = sums.total
    assert total.attempts == len(rows) == total.done + total.without_result
    expected = sum(used.wall_by_cores for used in map(_Used, rows))
    assert total.core_seconds == pytest.approx(expected)
    line = sums.timeline
    begin = min(line.started)
    span = max(max(line.ended) - begin, 1.0)
    drawn = sum(map(sum, running_averages(line, begin, span))) * span / STEPS
    walls = [ended - started for started, ended in zip(line.started, line.ended, strict=True)]
    assert drawn == pytest.approx(sum(walls), rel=1e-6, abs=1e-3)
    assert draw_timeline(line) is not None


class _Used:
    def __init__(self, row: Any) -> None:
        started, wall, _, cores = row[1]
        self.wall_by_cores = (started + wall - started) * cores


def test_rows_that_a_table_leaves_out_are_added_up() -> None:
    sums = AttemptSums(NOW)
    for place in range(MOST_ROWS + 5):
        sums.add(attempt(site=f"site{place}", wall=float(place)))
    shown = places_table(sums)
    *rows, total = shown.rows
    assert rows[-1][0] == "others"
    assert sum(int(row[2]) for row in rows) == int(total[2]) == MOST_ROWS + 5
    account = [
        AccountRow("2026-11", f"s{n}", "g", "o", 1, 1, 3600.0, 3600.0, 0.0, 0.0, 0.0) for n in range(300)
    ]
    usage = accounts_table("Usage", ("site",), account)
    assert usage.rows[-1][:2] == ("total", "300")
    assert usage.rows[-2][:2] == ("others", "100")


def test_a_month_without_usage_has_a_total_of_nothing() -> None:
    assert accounts_table("Usage", ("group", "owner"), []).rows[0][:3] == ("total", "", "0")


class _Page(HTMLParser):
    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.text = ""
        self.addresses: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.addresses += [value or "" for name, value in attrs if name in ("href", "src", "action")]
        assert not [name for name, _ in attrs if name.startswith("on")]

    def handle_data(self, data: str) -> None:
        self.text += data


@pytest.mark.parametrize("name", HOSTILE)
def test_names_stay_texts_in_the_file(name: str) -> None:
    sums = AttemptSums(NOW)
    for job in range(3):
        sums.add(attempt(job=job, site=name, ce=name))
    causes = [FailureCause(name, 2, "job 4", name)]
    tables = [states_table({"Done": 3}), places_table(sums)]
    report = WorkReport(f"Submission 1: {name}", [("name", name)], {"Done": 3}, causes, "", tables, sums)
    text = page_of(report)
    page = _Page(text)
    assert page.text.count(name) >= 5
    assert not page.tags & {"script", "img", "link", "iframe", "b", "a"}
    assert page.addresses == []
    assert not re.search(r"url\(|@import|https?://(?!www\.w3\.org/2000/svg)", text)


def test_many_attempts_do_not_make_a_large_file() -> None:
    sums = AttemptSums(NOW)
    for job in range(50_000):
        sums.add(attempt(job=job, started=1000.0 + job % 977, ended=1010.0 + job % 977))
    report = WorkReport("Submission 1", [], {"Done": 50_000}, [], "", [places_table(sums)], sums)
    assert len(page_of(report)) < 60_000
    assert len(sums.timeline.labels) == LABELS


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["report"], "give either"),
        (["report", "1", "--month", "2026-11"], "give either"),
        (["report", "job:1"], "is no submission or request"),
        (["report", "--month", "november"], "is not a month"),
        (["report", "--month", "2026-13"], "is not a date"),
        (["report", "--month", "9998-12"], "has not begun"),
    ],
)
def test_what_cannot_be_reported_is_said_in_a_sentence(
    cli: Cli, state: State, capsys: pytest.CaptureFixture[str], words: list[str], sentence: str
) -> None:
    assert cli(*words) == 2
    assert sentence in capsys.readouterr().err
    assert state.requests == []
