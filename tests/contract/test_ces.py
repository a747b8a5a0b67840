"""Rows of CEs: the director's columns and the switch are written apart."""

from __future__ import annotations

from typing import Any

from pilotage.store.tables import ces, node_clocks, pilots
from pilotage.store.tables.ces import CeProgress, CeRow, CeSwitch
from tests.contract.stores import fill
from tests.pilot_intent import pilot_intent


def test_the_director_and_an_administrator_write_their_own_columns(connection: Any) -> None:
    fill(connection)
    assert ces.by_name(connection, "a") == CeRow("a", CeProgress(), CeSwitch.ON, "", "", None)
    ces.set_switch(connection, "a", CeSwitch.DISABLED, by="ada", reason="why", now=5.0)
    progress = CeProgress("s", "trouble", "", 3, 1e9 + 0.1, "epoch", 0.1 + 0.2, 2, "failure")
    for _ in range(2):
        ces.save_progress(connection, "a", progress)
        assert ces.by_name(connection, "a") == CeRow("a", progress, CeSwitch.DISABLED, "ada", "why", 5.0)
    ces.set_switch(connection, "a", CeSwitch.ON, by="bob", reason="", now=6.0)
    assert ces.all_rows(connection) == {"a": CeRow("a", progress, CeSwitch.ON, "bob", "", 6.0)}


def test_the_last_report_of_each_node_counts(connection: Any) -> None:
    fill(connection)
    ids = [
        pilots.insert(
            connection,
            pilot_intent(f"clock {index}", secret_hash="h", idx=index, ce=ce),
        )
        for index, ce in enumerate(["x", "x", "x", "y", "x"])
    ]
    reports = [("n1", 200.0), ("n1", 0.5), ("n2", -90.0), ("n1", 77.0), ("n3", None)]
    assert node_clocks.last_offset(connection, "x", "n1") is None
    for at, (id_, (node, offset)) in enumerate(zip(ids, reports, strict=True)):
        pilots.update(connection, id_, hostname=node, clock_offset=offset, started=float(at))
    assert sorted(node_clocks.last_offsets(connection, "x")) == [("n1", 0.5, 1.0), ("n2", -90.0, 2.0)]
    assert node_clocks.last_offsets(connection, "y") == [("n1", 77.0, 3.0)]
    assert node_clocks.last_offset(connection, "x", "n1") == 0.5
    assert node_clocks.last_offset(connection, "x", "n3") is None


def test_pilots_and_submissions_by_ce(connection: Any) -> None:
    fill(connection)
    assert ces.pilot_counts(connection) == {"ce here": (1, 0), "ce there": (1, 0)}
    assert ces.open_submissions(connection) == []
    assert ces.failed_pilots(connection, "ce here", 5) == []
    sql = "UPDATE pilots SET state = 'Aborted', ended = 9.0, reason = 'r' WHERE ce = 'ce here'"
    connection.execute(sql)
    [pilot] = ces.failed_pilots(connection, "ce here", 5)
    assert (pilot.ended, pilot.reason, bool(pilot.had_jobs)) == (9.0, "r", False)
