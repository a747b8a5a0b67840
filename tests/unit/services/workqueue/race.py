"""Two servers on one database, and transactions of both at the same time."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from itertools import count
from threading import Event
from typing import Any, NamedTuple, TypeVar

from pilotage.core.errors import PilotageError
from pilotage.store.postgresql.connection import PostgresqlConnection
from pilotage.store.writer.transaction import Transaction
from tests.deadlines import PATIENCE
from tests.unit.services.bench import Bench
from tests.unit.services.workqueue.queue_bench import QueueBench

Result = TypeVar("Result")


class Servers(NamedTuple):
    first: QueueBench
    second: QueueBench

    def together(self, work: Sequence[Callable[[], Result]]) -> list[Result]:
        """Run functions at the same time, each in a thread of its own."""
        with ThreadPoolExecutor(len(work)) as threads:
            futures = [threads.submit(part) for part in work]
            return [future.result(PATIENCE) for future in futures]


class Race:
    """The first server keeps its transaction open until the second one waits for a lock, or has an answer."""

    def __init__(self, first: Bench, second: Bench) -> None:
        self.first, self.second = first, second
        self._threads = ThreadPoolExecutor(2)
        self._is_paused, self._may_go_on = Event(), Event()

    def run(
        self, first: Callable[[Transaction], Any], second: Callable[[Transaction], Any]
    ) -> tuple[Any, Any]:
        """Both answers, or errors."""
        self._is_paused, self._may_go_on = Event(), Event()

        def held(tx: Transaction) -> Any:
            answer = first(tx)
            self.pause()
            return answer

        early = self._threads.submit(self.answer, self.first, held)
        assert self._is_paused.wait(PATIENCE)
        late = self._threads.submit(self.answer, self.second, second)
        with self._watcher() as waiting:
            while not late.done() and not waiting():
                pass
        self._may_go_on.set()
        return early.result(PATIENCE), late.result(PATIENCE)

    def run_before_trip(
        self, trip: int, first: Callable[[Transaction], Any], second: Callable[[Transaction], Any]
    ) -> bool:
        """Run the second transaction just before this trip of the first one to the database, counted from 1.

        False: the first one makes fewer trips. The second one has then run after it.
        """
        connection, trips, reached = self.first.connection, count(1), Event()
        execute_all = PostgresqlConnection._execute_all

        def counted(statements: Sequence[Any]) -> Any:
            assert isinstance(connection, PostgresqlConnection)
            if next(trips) == trip:
                reached.set()
                self.pause()
            return execute_all(connection, statements)

        def watched(tx: Transaction) -> Any:
            setattr(connection, "_execute_all", counted)  # noqa: B010
            try:
                return first(tx)
            finally:
                delattr(connection, "_execute_all")

        for answer in self.run(watched, second):
            if isinstance(answer, PilotageError):
                raise answer
        return reached.is_set()

    def pause(self) -> None:
        """Called within the first transaction: let the second one run up to its lock, or to its end."""
        self._is_paused.set()
        assert self._may_go_on.wait(PATIENCE)

    @staticmethod
    def answer(bench: Bench, request: Callable[[Transaction], Any]) -> Any:
        try:
            return bench.do(request)
        except PilotageError as error:
            return error

    @contextmanager
    def _watcher(self) -> Iterator[Callable[[], bool]]:
        readers = self.first.address.readers()
        sql = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()"
        yield lambda: bool(readers.connection().execute(sql).fetchone()[0])
        readers.close()

    def end(self) -> None:
        self._threads.shutdown()
