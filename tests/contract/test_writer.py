"""Groups, answers after the commit, undoing, being killed."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from pilotage.core.errors import Overloaded
from pilotage.store.engine.sqlite import quick_check
from pilotage.store.writer.transaction import BatchableRequest, Transaction
from pilotage.store.writer.writer import Writer
from tests.contract.stores import Gate, Store, note, noted
from tests.deadlines import PATIENCE


def test_an_answer_comes_after_the_commit_that_holds_it(writer: Writer, store: Store) -> None:
    gate = Gate(writer)
    seen: list[list[int]] = []
    done = threading.Event()

    def reply(result: int, error: BaseException | None) -> None:
        # Another connection sees only what is committed: all of the group, whichever answer comes first.
        seen.append(noted(store.readers.connection()))
        if result == 4:
            done.set()

    for number in range(5):
        writer.submit(note(number), reply)
    assert noted(store.readers.connection()) == []
    groups = writer.groups
    gate.opened.set()
    assert done.wait(PATIENCE)
    assert seen == [[0, 1, 2, 3, 4]] * 5
    assert writer.groups == groups + 1


def test_one_request_that_fails_fails_alone(writer: Writer, store: Store) -> None:
    undone: list[str] = []

    def fails(tx: Transaction) -> None:
        note(99)(tx)
        tx.on_rollback(lambda: undone.append("first"))
        tx.on_rollback(lambda: undone.append("second"))
        raise ValueError("mine")

    gate = Gate(writer)
    answers: list[Any] = []
    done = threading.Event()

    def reply(result: Any, error: BaseException | None) -> None:
        answers.append(error or result)
        if len(answers) == 5:
            done.set()

    for request in (note(1), note(2), fails, note(3), note(4)):
        writer.submit(request, reply)
    gate.opened.set()
    assert done.wait(PATIENCE)
    assert isinstance(answers[2], ValueError)
    assert answers[:2] + answers[3:] == [1, 2, 3, 4]
    assert noted(store.readers.connection()) == [1, 2, 3, 4]
    # Once with the group, once alone; newest first.
    assert undone == ["second", "first"] * 2
    assert writer.replays == 1


def test_a_committed_transaction_is_never_undone(writer: Writer) -> None:
    undone: list[int] = []
    writer.call(lambda tx: tx.on_rollback(lambda: undone.append(1)))
    with pytest.raises(ZeroDivisionError):
        writer.call(lambda tx: 1 // 0)
    assert undone == []


def test_an_undo_sees_the_rows_as_before(writer: Writer) -> None:
    seen: list[list[int]] = []

    def fails(tx: Transaction) -> None:
        tx.on_rollback(lambda: seen.append(noted(tx.connection)))
        note(2)(tx)
        raise ValueError("mine")

    writer.call(note(1))
    with pytest.raises(ValueError, match="mine"):
        writer.call(fails)
    assert seen == [[1]]


def test_large_requests_share_a_commit_with_fewer(connection: Any) -> None:
    writer = Writer(connection)
    writer.start()
    gate, done = Gate(writer), threading.Event()

    def handler(tx: Transaction, values: Sequence[int]) -> list[int]:
        return [note(value)(tx) for value in values]

    large = connection.group // 2
    last = 2 * 3 - 1
    for number in range(last + 1):
        item = BatchableRequest(handler, number, large)
        writer.submit(item, lambda result, error: done.set() if result == last else None)
    groups = writer.groups
    gate.opened.set()
    assert done.wait(PATIENCE)
    writer.stop()
    assert writer.groups - groups == 3
    assert noted(connection) == list(range(last + 1))


def test_a_full_queue_refuses_instead_of_piling_up(writer: Writer, store: Store) -> None:
    gate, done = Gate(writer), threading.Event()
    for number in range(8):
        writer.submit(note(number), lambda result, error: done.set() if result == 7 else None)
    with pytest.raises(Overloaded) as refused:
        writer.submit(note(99), lambda result, error: None)
    assert refused.value.retry_after > 0
    gate.opened.set()
    assert done.wait(PATIENCE)
    writer.call(note(8))
    assert noted(store.readers.connection()) == list(range(9))


def test_a_stopping_writer_does_waiting_requests_and_refuses_later_ones(
    connection: Any, store: Store
) -> None:
    writer = Writer(connection)
    writer.start()
    gate = Gate(writer)
    for number in range(connection.group + 5):
        writer.submit(note(number), lambda result, error: None)
    stopping = threading.Thread(target=writer.stop)
    stopping.start()
    gate.opened.set()
    stopping.join(PATIENCE)
    assert not stopping.is_alive()
    assert noted(connection) == list(range(connection.group + 5))
    with pytest.raises(Overloaded):
        writer.call(note(1000))


def test_the_event_loop_is_answered_alike(writer: Writer) -> None:
    async def ask() -> list[Any]:
        wanted = [writer.acall(note(1)), writer.acall(lambda tx: 1 // 0), writer.acall(note(2))]
        return await asyncio.gather(*wanted, return_exceptions=True)

    one, error, two = asyncio.run(ask())
    assert (one, two) == (1, 2)
    assert isinstance(error, ZeroDivisionError)


@pytest.mark.slow
def test_nothing_acknowledged_is_lost_when_the_process_is_killed(store: Store) -> None:
    chance, said, first = random.Random(11), set[int](), 1
    program = Path(__file__).with_name("killed_writer.py")
    for _ in range(12):
        command = [sys.executable, str(program), store.place, str(first)]
        process = subprocess.Popen(command, stdout=subprocess.PIPE)
        assert process.stdout is not None
        try:
            for _ in range(chance.randrange(1, 60)):
                said.add(int(process.stdout.readline()))
        finally:
            os.kill(process.pid, signal.SIGKILL)
            rest = process.stdout.read()
            process.stdout.close()
            process.wait(PATIENCE)
        said.update(int(line) for line in rest.splitlines(keepends=True) if line.endswith(b"\n"))
        connection = store.open_writer()
        if isinstance(connection, sqlite3.Connection):
            assert quick_check(connection) == "ok"
        assert said <= set(noted(connection))
        connection.close()
        first += 10**6
    assert len(said) > 100
