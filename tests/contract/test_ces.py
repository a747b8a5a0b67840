"""Rows of CEs: the director's columns and the switch are written apart."""

from __future__ import annotations

from typing import Any

from pilotage.store.tables import ces
from pilotage.store.tables.ces import CeProgress, CeRow, CeSwitch
from tests.contract.stores import fill


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


def test_pilots_and_submissions_by_ce(connection: Any) -> None:
    fill(connection)
    assert ces.pilot_counts(connection) == {"ce here": (1, 0), "ce there": (1, 0)}
    assert ces.open_submissions(connection) == []
    assert ces.failed_pilots(connection, "ce here", 5) == []
    sql = "UPDATE pilots SET state = 'Aborted', ended = 9.0, reason = 'r' WHERE ce = 'ce here'"
    connection.execute(sql)
    [pilot] = ces.failed_pilots(connection, "ce here", 5)
    assert (pilot.ended, pilot.reason, bool(pilot.had_jobs)) == (9.0, "r", False)
