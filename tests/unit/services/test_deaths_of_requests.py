"""A server dies at each statement of a release, a finish and a roll-up: no piece is lost, and none is done twice."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pilotage.core.errors import NotAuthenticated
from pilotage.core.requests.specification import Retry
from pilotage.store.tables import job_outcomes
from pilotage.store.writer.transaction import Transaction
from tests.unit.services.bench import Bench, Paper, finished
from tests.unit.services.request_bench import RequestBench
from tests.writer_guard import as_writer

JOBS = 3


class ServerDied(BaseException):
    """The process is gone. Nothing of it runs any more."""


class DyingConnection:
    """A connection whose server dies at one of its statements."""

    def __init__(self, bench: DyingBench) -> None:
        self._bench = bench

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._bench.connection, name)
        return self._counted(method) if name.startswith("execute") or name == "commit" else method

    def _counted(self, method: Callable[..., Any]) -> Callable[..., Any]:
        def execute(*values: Any) -> Any:
            self._bench.statements += 1
            if self._bench.statements == self._bench.dies_at:
                raise ServerDied
            return method(*values)

        return execute


class DyingBench(Bench):
    """Runs each request in its own transaction. `dies_at`: the number of the statement at which the server dies."""

    statements = 0
    dies_at = 0
    deaths = 0

    def do(self, request: Callable[[Transaction], Any]) -> Any:
        if not self.dies_at:
            return super().do(request)
        connection: Any = DyingConnection(self)
        tx = Transaction(connection)
        with as_writer():
            self.connection.begin()
            try:
                answer = request(tx)
                tx.finish()
                connection.commit()
            except ServerDied:
                self.deaths += 1
                self.dies_at = 0
                self.close()
                self.open()
                raise
            except NotAuthenticated:
                self.connection.rollback()
                tx.undo_changes()
                raise
        return answer


class Story:
    """A request with jobs, one of which fails at its first try, and a pilot that repeats what was not answered."""

    def __init__(self, bench: DyingBench) -> None:
        self.bench = bench
        self.of_requests = RequestBench(bench)
        self.of_requests.agent()
        self.request = self.of_requests.request(retry=Retry(cooloff=0))
        self.element = self.of_requests.element(self.request, JOBS)
        self.worker: Paper = bench.pilot()
        self.failed = False
        self.accepted: list[int] = []

    def run(self) -> None:
        for _ in range(60):
            for act in (self.release, self.work, self.roll_up):
                try:
                    act()
                except ServerDied:
                    self.restart()
            if self.of_requests.state(self.request) == "completed":
                return
        raise AssertionError(self.of_requests.jobs())

    def restart(self) -> None:
        """The next server begins with an empty memory."""
        self.of_requests = RequestBench(self.bench)

    def release(self) -> None:
        self.bench.now += 1.0
        self.of_requests.make_again()
        self.of_requests.release(most=2)

    def roll_up(self) -> None:
        self.of_requests.roll_up(most=2)
        self.of_requests.advance(self.request)

    def work(self) -> None:
        for offer in self.repeated(lambda: self.worker.take()):
            assert self.repeated(lambda offer=offer: self.worker.confirm(offer)) == "accepted"
            parameters = self.bench.job(offer.job)["parameters"]
            fails = not self.failed
            content = {"exit_code": 1, "files": []} if fails else {"files": []}
            [verdict] = self.repeated(
                lambda offer=offer, content=content: (
                    self.worker.send(finishes=[finished(offer, **content)]).finishes
                )
            )
            assert verdict.verdict == "accepted"
            self.failed = True
            if not fails:
                self.accepted.append(parameters)

    def repeated(self, say: Callable[[], Any]) -> Any:
        """A pilot repeats a message until it has the answer."""
        while True:
            try:
                return say()
            except ServerDied:
                self.restart()

    def check(self) -> None:
        self.bench.check()
        assert len(self.accepted) == len(set(self.accepted)) == JOBS
        assert self.of_requests.jobs() == {"done": JOBS}
        assert self.of_requests.progress(self.element) == {
            "jobs_done": JOBS, "jobs_failed": 0, "jobs_canceled": 0, "events_done": 10 * JOBS,
        }  # fmt: skip
        assert job_outcomes.is_empty(self.bench.connection)
        sql = "SELECT parameters, count(*) FROM jobs WHERE state = 'Done' GROUP BY parameters"
        assert [row[1] for row in self.bench.connection.execute(sql)] == [1] * JOBS
        sql = "SELECT sum(count) FROM submissions"
        assert self.bench.connection.execute(sql).fetchone()[0] == JOBS + 1
        assert self.of_requests.way(self.request) == [
            "acquired", "running-open", "running-closed", "completed",
        ]  # fmt: skip


def statements_of_a_story(folder: Path, store: str) -> int:
    bench = DyingBench(folder, store=store)
    story = Story(bench)
    bench.dies_at = 10**9
    story.run()
    bench.dies_at = 0
    story.check()
    bench.end()
    return bench.statements


@pytest.mark.parametrize(
    ("store", "step"),
    [
        ("sqlite", 11),
        pytest.param("sqlite", 1, marks=pytest.mark.slow),
        pytest.param("postgresql", 17, marks=pytest.mark.slow),
    ],
)
def test_a_server_that_dies_at_any_statement_loses_and_doubles_nothing(
    tmp_path: Path, store: str, step: int
) -> None:
    (tmp_path / "whole").mkdir()
    number = statements_of_a_story(tmp_path / "whole", store)
    assert number > 50
    for place in range(1, number, step):
        folder = tmp_path / str(place)
        folder.mkdir()
        bench = DyingBench(folder, store=store)
        story = Story(bench)
        bench.dies_at = place
        story.run()
        bench.dies_at = 0
        assert bench.deaths == 1
        story.check()
        bench.end()
