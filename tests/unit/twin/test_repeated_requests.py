"""Every request to the writer can be repeated: the writer runs a group of requests again after a failed commit."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from pilotage.store.engine.connection import SerializationFailure
from pilotage.twin import run as twin_run
from pilotage.twin.ces import TwinCe
from pilotage.twin.result import TwinOutcome
from pilotage.twin.server import TwinServer, TwinServerSettings
from tests.simulation.checks import check_memory
from tests.unit.twin.test_run import CE, run, small_trace


class RepeatingServer(TwinServer):
    """Each transaction of this server fails at its first commit, and is run again."""

    def __init__(self, settings: TwinServerSettings, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(settings, loop)
        connection: Any = self.connection
        commit, self.commits = connection.commit, 0

        def commit_at_second_try() -> None:
            self.commits += 1
            if self.commits % 2:
                raise SerializationFailure("the first try fails")
            commit()

        connection.commit = commit_at_second_try

    def close(self) -> None:
        assert self.commits > 100
        check_memory(self, self.connection)
        super().close()


def test_a_run_whose_transactions_all_run_twice_ends_like_another(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(twin_run, "TwinServer", RepeatingServer)
    jobs = small_trace(30)
    rows = run(jobs).jobs.rows
    assert list(rows["outcome"]) == [TwinOutcome.DONE] * len(jobs)
    assert list(rows["attempts"]) == [1] * len(jobs)
    assert rows["used"].sum() == pytest.approx((jobs.rows["run"] * jobs.rows["processors"]).sum())


def test_lost_pilots_are_noticed_in_transactions_that_run_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(twin_run, "TwinServer", RepeatingServer)
    failing = TwinCe(CE.name, CE.nodes, start_delay=5.0, failure_rate=20.0)
    rows = run(small_trace(30), ce=failing).jobs.rows
    assert set(rows["outcome"]) <= {TwinOutcome.DONE, TwinOutcome.FAILED}
    assert max(rows["attempts"]) > 1
