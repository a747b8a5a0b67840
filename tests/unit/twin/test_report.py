"""The report of a study: tables, differences, pictures, page and document."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ElementTree
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest

from pilotage.core.errors import Conflict, InvalidInput
from pilotage.documents.scales import LinearScale, LogScale, axis_end, round_highest, ticks, time_ticks
from pilotage.twin.measures import measure_run
from pilotage.twin.report.differences import compare_policies
from pilotage.twin.report.files import DOCUMENT, PAGE, open_folder, write_report
from pilotage.twin.report.pictures import pictures_of
from pilotage.twin.report.study import PolicyRuns, Study, describe_fits
from pilotage.twin.report.tables import over_seeds, tables_of
from pilotage.twin.workload import TraceJobs
from tests.unit.twin.invented_runs import (
    CES,
    OTHER,
    SPAN,
    WEIGHTS,
    invented_result,
    invented_run,
    invented_study,
    policy_of,
)
from tests.unit.twin.swf_text import job

SVG = "{http://www.w3.org/2000/svg}"


@pytest.fixture(scope="module")
def study() -> Study:
    return invented_study()


@pytest.fixture(scope="module")
def report(study: Study, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("report") / "new"
    open_folder(folder)
    write_report(study, folder)
    return folder


def test_a_cell_is_the_median_with_its_range() -> None:
    assert over_seeds([1.0, 3.0, 2.0], "{:.0f}".format) == "2 (1 to 3)"
    assert over_seeds([1.01, 1.02], "{:.0f}".format) == "1"


def test_each_table_has_a_row_for_each_party(study: Study) -> None:
    tables = {table.title: table for table in tables_of(study.policies[0])}
    assert list(tables) == [
        "Runs",
        "Waits by group",
        "Entitled and used, by group",
        "Entitled and used, by owner",
        "Pilots",
    ]
    assert all(len(row) == len(table.columns) for table in tables.values() for row in table.rows)
    assert len(tables["Waits by group"].rows) == 5
    assert len(tables["Entitled and used, by owner"].rows) == 10


def test_a_difference_has_its_spread_over_the_seeds(study: Study) -> None:
    (comparison,) = compare_policies(study.policies)
    texts = [difference.text for difference in comparison.differences]
    assert comparison.seeds == (1, 2, 3)
    assert any(text.startswith("group atlas: -") and text.endswith("core-seconds") for text in texts)
    assert any(text.startswith("group cms: median wait 12 min (") and " → 7 min (" in text for text in texts)
    weights = [difference.weight for difference in comparison.differences]
    assert weights == sorted(weights, reverse=True)


def test_what_differs_by_chance_only_is_unchanged() -> None:
    runs = [PolicyRuns("a", [invented_run(WEIGHTS, 1), invented_run(WEIGHTS, 2)])]
    runs.append(PolicyRuns("b", [invented_run(WEIGHTS, 2), invented_run(WEIGHTS, 1)]))
    for run, seed in zip(runs[1].runs, (1, 2), strict=True):
        object.__setattr__(run, "seed", seed)
    (comparison,) = compare_policies(runs)
    assert comparison.differences == ()
    assert comparison.unchanged[0].startswith("cores that run payloads: 83.")
    assert "core-seconds of 5 of 5 groups (within 1.0 %)" in comparison.unchanged


def test_policies_are_compared_on_their_common_seeds() -> None:
    runs = [
        PolicyRuns("a", [invented_run(WEIGHTS, 1), invented_run(WEIGHTS, 2)]),
        PolicyRuns("b", [invented_run(OTHER, 2)]),
    ]
    assert compare_policies(runs)[0].seeds == (2,)


def test_pictures_are_well_formed_and_for_both_screens(report: Path) -> None:
    names = sorted(file.name for file in report.glob("*.svg"))
    assert names == [
        "cores-1.svg",
        "cores-2.svg",
        "pilots.svg",
        "shares-1.svg",
        "shares-2.svg",
        "waits.svg",
    ]
    for name in names:
        root = ElementTree.fromstring((report / name).read_text(encoding="utf-8"))
        assert root.tag == f"{SVG}svg"
        assert "prefers-color-scheme: dark" in (root.findtext(f"{SVG}style") or "")
        width = float(root.get("width") or 0)
        places = [float(text.get("x") or -1) for text in root.iter(f"{SVG}text")]
        assert all(0 <= place <= width for place in places)
    waits = (report / "waits.svg").read_text(encoding="utf-8")
    assert "&lt;b&gt;&amp;lt;" in waits


class PageReader(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.addresses: list[str] = []
        self.text = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.addresses += [value or "" for name, value in attrs if name in ("href", "src", "action")]

    def handle_data(self, data: str) -> None:
        self.text += data


def test_the_page_stands_alone_and_escapes_names(report: Path) -> None:
    page = PageReader()
    page.feed((report / PAGE).read_text(encoding="utf-8"))
    assert not page.addresses
    assert not {"script", "b", "link", "img", "iframe"} & set(page.tags)
    assert page.tags.count("svg") == 6
    assert "<b>&lt;-0 (<b>&lt;)" in page.text
    assert "cms-first.toml instead of base.toml" in page.text
    for sentence in ("the network: each message takes 10 ms", "521 lines", "CE grid (120 cores)"):
        assert sentence in page.text


def test_the_document_has_all_figures(report: Path) -> None:
    document = json.loads((report / DOCUMENT).read_text(encoding="utf-8"))
    assert [len(policy["runs"]) for policy in document["policies"]] == [3, 3]
    assert document["policies"][0]["runs"][0]["groups"][0]["jobs"] == 200
    assert document["comparisons"][0]["differences"]
    assert document["partial"] is False


def test_a_partial_report_says_so(tmp_path: Path) -> None:
    write_report(invented_study(seeds=3, finished=1), tmp_path)
    page = (tmp_path / PAGE).read_text(encoding="utf-8")
    assert "This report is partial: 2 of 6 runs have finished, it was interrupted." in page
    assert json.loads((tmp_path / DOCUMENT).read_text(encoding="utf-8"))["partial"] is True


def test_a_run_without_a_second_sample_has_pictures() -> None:
    run = measure_run(invented_result(WEIGHTS, 1, step=SPAN), policy_of(WEIGHTS), CES)
    study = replace(invented_study(1, both=False), policies=(PolicyRuns("base.toml", [run]),))
    assert len(pictures_of(study)) == 4


def test_a_folder_with_files_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(Conflict, match="is not empty"):
        open_folder(tmp_path)
    with pytest.raises(InvalidInput, match="is not a folder"):
        open_folder(tmp_path / "file")


def test_fits_tell_run_times_and_waits() -> None:
    trace, ce = describe_fits(TraceJobs([job(number, run=60.0 * number) for number in range(1, 102)]), CES)
    assert trace.startswith("run times are those of the trace: 10 % up to 11 min, 50 % up to 51 min")
    assert ce.startswith("CE grid (120 cores): batch jobs wait 10 % up to 18 s, 50 % up to 6 min")
    assert ce.endswith("0.1 % of its pilots fail in an hour")


@pytest.mark.parametrize(
    ("value", "end", "labels"),
    [
        (87.0, 100.0, [0, 25, 50, 75, 100]),
        (110.0, 150.0, [0, 50, 100, 150]),
        (0.3, 0.3, [0, 0.1, 0.2, 0.3]),
        (1.0, 1.0, [0, 0.25, 0.5, 0.75, 1.0]),
    ],
)
def test_an_axis_ends_at_a_round_number(value: float, end: float, labels: list[float]) -> None:
    assert axis_end(value, 4) == pytest.approx(end)
    assert ticks(axis_end(value, 4), 4) == pytest.approx(labels)


def test_scales_place_values() -> None:
    assert LinearScale(10.0, 100.0, 200.0).place(5.0) == 150.0
    log = LogScale(10_000.0, 0.0, 400.0)
    assert [round(log.place(value)) for value in (0.0, 1.0, 100.0, 10_000.0)] == [0, 0, 200, 400]
    assert round_highest(0.0) == 1.0
    assert time_ticks(10 * 86400.0) == (
        "days",
        [(0.0, "0"), *((2 * n * 86400.0, f"{2 * n}") for n in range(1, 6))],
    )
    assert time_ticks(90.0)[0] == "seconds"
