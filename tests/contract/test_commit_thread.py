"""A COMMIT that is carried out beside the next group: nothing is answered before it, and both go if it fails."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from pilotage.store.writer import stats
from pilotage.store.writer.commit_thread import Commit, CommitThread
from pilotage.store.writer.transaction import Transaction
from pilotage.store.writer.writer import Writer
from tests.contract.stores import Store, note, noted
from tests.deadlines import PATIENCE


class Commits:
    """The COMMITs of a connection: each waits until it is let go, and fails if it is told to."""

    def __init__(self, connection: Any) -> None:
        self._carry_out: Callable[[], None] = connection.commit
        self.begun = threading.Semaphore(0)
        self.held, self.fails = False, 0
        self.free = threading.Semaphore(0)

    def __call__(self) -> None:
        if self.held:
            self.begun.release()
            assert self.free.acquire(timeout=PATIENCE)
        if self.fails:
            self.fails -= 1
            full = sqlite3.OperationalError("database or disk is full")
            full.sqlite_errorcode = sqlite3.SQLITE_FULL
            raise full
        self._carry_out()


class Asked:
    """Requests to a writer and what came of them."""

    def __init__(self, writer: Writer) -> None:
        self.writer = writer
        self.answers: dict[str, Any] = {}
        self.done = threading.Semaphore(0)

    def ask(self, name: str, request: Callable[[Transaction], Any]) -> None:
        def reply(result: Any, error: BaseException | None) -> None:
            self.answers[name] = error or result
            self.done.release()

        self.writer.submit(request, reply)

    def together(
        self, *named: tuple[str, Callable[[Transaction], Any]], commits: Commits | None = None
    ) -> None:
        """Some that are of one group: the writer is at work while they come. `commits`: theirs is begun, and held."""
        at_work, go_on = threading.Event(), threading.Event()

        def waits(_: Transaction) -> None:
            at_work.set()
            assert go_on.wait(PATIENCE)

        self.writer.submit(waits, lambda result, error: None)
        assert at_work.wait(PATIENCE)
        for name, request in named:
            self.ask(name, request)
        if commits is None:
            go_on.set()
            return
        commits.held = True
        go_on.set()
        # That of whoever waited for the others to come is let go.
        assert commits.begun.acquire(timeout=PATIENCE)
        commits.free.release()
        assert commits.begun.acquire(timeout=PATIENCE)

    def wait(self, count: int) -> None:
        for _ in range(count):
            assert self.done.acquire(timeout=PATIENCE)


@pytest.fixture
def commits(store: Store, connection: Any) -> Commits:
    if not connection.commits_in_thread:
        pytest.skip("this store commits where it decides")
    commits = connection.commit = Commits(connection)
    return commits


@pytest.fixture
def asked(commits: Commits, connection: Any) -> Iterator[Asked]:
    writer = Writer(connection, waiting=100)
    writer.start()
    yield Asked(writer)
    commits.held, commits.fails = False, 0
    writer.stop()


def test_the_next_group_is_decided_meanwhile_and_answered_after_the_first(
    asked: Asked, commits: Commits, store: Store
) -> None:
    decided = threading.Event()

    def decides(tx: Transaction) -> int:
        decided.set()
        return note(3)(tx)

    asked.writer.call(note(0))
    asked.together(("1", note(1)), ("2", note(2)), commits=commits)
    asked.ask("3", decides)
    assert decided.wait(PATIENCE)
    assert asked.answers == {}
    assert noted(store.readers.connection()) == [0]
    commits.held = False
    commits.free.release()
    asked.wait(3)
    assert list(asked.answers) == ["1", "2", "3"]
    assert noted(store.readers.connection()) == [0, 1, 2, 3]


def test_the_time_of_a_transaction_leaves_out_work_during_its_commit(
    asked: Asked, commits: Commits, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = [0.0]
    monkeypatch.setattr(stats, "perf_counter", lambda: clock[0])
    decided = threading.Event()

    def decides(tx: Transaction) -> None:
        clock[0] += 100.0
        note(3)(tx)
        clock[0] += stats.SLOW_TRANSACTION * 2
        decided.set()

    asked.together(("1", note(1)), ("2", note(2)), commits=commits)
    asked.ask("3", decides)
    commits.held = False
    commits.free.release()
    asked.wait(3)
    assert decided.is_set()
    taken = asked.writer.times
    assert taken.longest_work == pytest.approx(stats.SLOW_TRANSACTION * 2)
    assert (taken.slow, taken.busy) == (1, 0)


def test_a_request_without_statements_is_answered_after_the_earlier_commit(
    asked: Asked, commits: Commits
) -> None:
    asked.together(("1", note(1)), ("2", note(2)), commits=commits)
    asked.ask("memory", lambda _: "told")
    commits.held = False
    commits.free.release()
    asked.wait(3)
    assert list(asked.answers) == ["1", "2", "memory"]


@pytest.mark.parametrize("wrong", [False, True], ids=["right", "wrong itself"])
def test_a_commit_that_fails_takes_both_groups_back_and_each_is_done_again(
    asked: Asked, commits: Commits, store: Store, wrong: bool
) -> None:
    undone: list[str] = []

    def noting(number: int) -> Callable[[Transaction], int]:
        def request(tx: Transaction) -> int:
            tx.on_rollback(lambda: undone.append(f"{number} with {noted(tx.connection)}"))
            if wrong and number == 3:
                raise ValueError("mine")
            return note(number)(tx)

        return request

    asked.writer.call(note(0))
    asked.together(("1", noting(1)), ("2", noting(2)), commits=commits)
    decided = threading.Event()

    def decides(tx: Transaction) -> int:
        decided.set()
        return noting(3)(tx)

    asked.ask("3", decides)
    assert decided.wait(PATIENCE)
    commits.fails, commits.held = 1, False
    commits.free.release()
    asked.wait(3)
    # The later one first, and each sees the rows as they were before.
    assert undone[:3] == ["3 with [0]", "2 with [0]", "1 with [0]"]
    assert (asked.answers["1"], asked.answers["2"]) == (1, 2)
    if wrong:
        assert isinstance(asked.answers["3"], ValueError)
        assert noted(store.readers.connection()) == [0, 1, 2]
    else:
        assert undone[3:] == []
        assert asked.answers["3"] == 3
        assert noted(store.readers.connection()) == [0, 1, 2, 3]


def test_a_commit_that_fails_for_everybody_is_told_to_everybody(
    asked: Asked, commits: Commits, store: Store
) -> None:
    asked.together(("1", note(1)), ("2", note(2)), commits=commits)
    commits.fails, commits.held = 10, False
    commits.free.release()
    asked.wait(2)
    assert all("full" in str(error) for error in asked.answers.values())
    assert noted(store.readers.connection()) == []


def test_a_writer_stops_only_when_the_last_commit_has_ended(
    asked: Asked, commits: Commits, store: Store
) -> None:
    asked.together(("1", note(1)), ("2", note(2)), commits=commits)
    stopping = threading.Thread(target=asked.writer.stop)
    stopping.start()
    commits.held = False
    commits.free.release()
    stopping.join(PATIENCE)
    assert not stopping.is_alive()
    assert asked.answers == {"1": 1, "2": 2}
    assert noted(store.readers.connection()) == [1, 2]


def test_in_the_loop_of_a_server_as_well(connection: Any, store: Store) -> None:
    if not connection.commits_in_thread:
        pytest.skip("this store commits where it decides")
    writer = Writer(connection, waiting=1000)

    async def ask() -> list[Any]:
        writer.move_to_loop(asyncio.get_running_loop())
        wanted = [writer.acall(note(number)) for number in range(150)]
        answers: list[Any] = await asyncio.gather(*wanted)
        return [*answers, writer.call(note(150)), await writer.acall(lambda tx: noted(tx.connection))]

    *answers, last = asyncio.run(ask())
    assert answers == list(range(151)) == last
    assert writer.groups < 20
    writer.stop()


def test_a_writer_that_commits_inline_in_its_loop_has_no_thread(connection: Any, store: Store) -> None:
    committed, commit = list[int](), connection.commit

    def record() -> None:
        committed.append(threading.get_ident())
        commit()

    connection.commit = record
    writer, threads = Writer(connection, commits_inline=True), threading.active_count()

    async def work() -> list[int]:
        writer.move_to_loop(asyncio.get_running_loop())
        answers = await asyncio.gather(*[writer.acall(note(number)) for number in range(5)])
        assert threading.active_count() == threads
        return answers

    asyncio.run(work())
    writer.stop()
    assert committed == [threading.get_ident()]
    assert noted(store.readers.connection()) == list(range(5))


def test_a_commit_that_is_over_before_its_turn_is_answered(
    connection: Any, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not connection.commits_in_thread:
        pytest.skip("this store commits where it decides")
    begin = CommitThread.begin

    def slowly(self: CommitThread) -> Commit:
        """The loop's thread is held up until the other one has told that the COMMIT is over."""
        told, over = threading.Event(), self._over

        def tell() -> None:
            over()
            told.set()

        monkeypatch.setattr(self, "_over", tell)
        commit = begin(self)
        assert told.wait(PATIENCE)
        monkeypatch.setattr(self, "_over", over)
        return commit

    monkeypatch.setattr(CommitThread, "begin", slowly)
    writer = Writer(connection, waiting=1000)

    async def ask() -> list[Any]:
        writer.move_to_loop(asyncio.get_running_loop())
        wanted = [writer.acall(note(number)) for number in range(2)]
        return await asyncio.wait_for(asyncio.gather(*wanted), PATIENCE)

    assert asyncio.run(ask()) == [0, 1]
    writer.stop()
