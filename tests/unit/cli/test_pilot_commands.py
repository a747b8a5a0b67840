"""Lines of `pilotage pilot kill`, `pilot list`, `pilot show` and `ce show`."""

from __future__ import annotations

import pytest

from pilotage.cli.ces.show import clocks_text, efficiency_text, reason_of
from pilotage.cli.lists import pilot_cells
from pilotage.cli.pilots.kill import DONE, NOT_CALLED, summary
from pilotage.cli.pilots.show import efficiency_of
from pilotage.wire.ces import CeReport, CeSummary, NodeClock
from pilotage.wire.pilots import PilotKillResponse
from pilotage.wire.pool import PilotSummary


@pytest.mark.parametrize("order", list(DONE))
def test_pilots_that_never_called_home_have_a_line_of_their_own(order: str) -> None:
    lines = list(summary(PilotKillResponse(5, 4, not_called=1), order, dry_run=False))
    assert lines == [f"3 of 5 pilots {DONE[order]}", f"1 of 5 pilots {NOT_CALLED}"]
    lines = list(summary(PilotKillResponse(2, 2, not_called=2), order, dry_run=False))
    assert lines == [f"2 of 2 pilots {NOT_CALLED}"], "none of them leaves at a next call"
    assert list(summary(PilotKillResponse(2, 2), order, dry_run=False)) == [f"2 of 2 pilots {DONE[order]}"]
    assert list(summary(PilotKillResponse(2, 0), order, dry_run=False)) == [f"0 of 2 pilots {DONE[order]}"]


def test_a_dry_run_has_one_line() -> None:
    lines = list(summary(PilotKillResponse(2, 2, not_called=1), "drain", dry_run=True))
    assert lines == ["2 of 2 pilots would get this order"]


def pilot(**facts: object) -> PilotSummary:
    plain = {
        "id": 7, "state": "Running", "stalled": False, "site": "here", "ce": "cluster", "batch_id": "12_0",
        "hostname": "n1", "owner": "alice", "version": "1", "processors": 4, "jobs": 2, "finished": 3,
        "submitted": 1.0, "started": 2.0, "last_seen": 3.0, "ended": None, "pilot_type": "private",
    }  # fmt: skip
    return PilotSummary(**{**plain, **facts})  # type: ignore[arg-type]


def test_the_list_shows_type_owner_and_efficiency() -> None:
    row = pilot(core_seconds=7200.0, payload_core_seconds=6000.0, efficiency=6000 / 7200)
    cells = pilot_cells(row, now=5.0, exact=True)
    assert cells == (
        7, "Running", "here", "cluster", "private", "alice", "12_0", "n1", 4, 2, 3, "83.3%", cells[-2], "",
    )  # fmt: skip
    assert efficiency_of(row) == "83.3% of 2 core-h"
    assert efficiency_of(pilot()) == ""
    assert pilot_cells(pilot(), now=5.0, exact=True)[-3] == ""


def test_a_ce_shows_its_efficiency_and_the_clocks_that_are_off() -> None:
    ce = CeSummary("cluster", "slurm", "here", "any", "active")
    clocks = [
        NodeClock("n1", 125.0, 5.0, "125 s ahead of the server"),
        NodeClock("n2", -90.0, 5.0, "90 s behind the server"),
    ]
    report = CeReport(ce, clocks=clocks, core_seconds=7200.0, efficiency=0.75, window=86400.0)
    assert efficiency_text(report) == "75.0% of 2 core-h in the last 24 h"
    assert clocks_text(report) == "n1 is 125 s ahead of the server; n2 is 90 s behind the server"
    assert (efficiency_text(CeReport(ce)), clocks_text(CeReport(ce))) == ("", "")


def test_the_list_of_ces_keeps_the_last_failure_when_a_pause_has_ended() -> None:
    failed = CeSummary("cluster", "slurm", "here", "any", "active", alike=2, failure="the hook broke")
    assert reason_of(failed, 0.0) == "last failure: the hook broke"
    paused = CeSummary("cluster", "slurm", "here", "any", "paused", "the hook broke", alike=2, failure="old")
    assert reason_of(paused, 0.0) == "the hook broke"
    started = CeSummary("cluster", "slurm", "here", "any", "active", failure="old", information="no answer")
    assert reason_of(started, 0.0) == "information: no answer"
