"""The duty that keeps the history of reasons leaves the loop to others while it looks."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any, cast

import pytest

from pilotage.core.ids import QueueId
from pilotage.server import loop_turns
from pilotage.server.context import Context
from pilotage.server.duties.wait_reasons import ReasonDuty
from pilotage.server.failing_rows import FailingRows
from pilotage.services.why.answer import WaitSnapshot
from pilotage.services.why.wait_history import WaitRecorder
from pilotage.store.engine.connection import Connection
from pilotage.store.tables.wait_reasons import ReasonRow

QUEUES = 50


class _Looker(WaitRecorder):
    """Notes in which thread it looked, and how often others had a turn before each step."""

    def __init__(self) -> None:
        super().__init__()
        self.turns, self.seen, self.threads = 0, list[int](), set[int]()

    def steps(self, found: WaitSnapshot, connection: Connection, now: float) -> Iterator[list[ReasonRow]]:
        for queue in range(QUEUES):
            self.seen.append(self.turns)
            self.threads.add(threading.get_ident())
            yield [ReasonRow(QueueId(queue), now, "share", "")]


async def _looked(context: Any, looker: _Looker) -> list[ReasonRow]:
    duty = ReasonDuty(cast(Context, context))
    duty._recorder = looker

    async def others() -> None:
        while True:
            looker.turns += 1
            await asyncio.sleep(0)

    task = asyncio.create_task(others())
    rows = await duty._analyse(cast(WaitSnapshot, None), 5.0)
    task.cancel()
    return rows


def _context(*, in_loop: bool) -> SimpleNamespace:
    readers = SimpleNamespace(connection=lambda: None)
    return SimpleNamespace(
        readers=readers,
        writer=SimpleNamespace(in_loop=in_loop),
        monotonic=time.monotonic,
        duties=SimpleNamespace(failing=FailingRows(lambda: 0.0)),
        stop=asyncio.Event(),
    )


def test_a_look_in_the_loop_is_cut_into_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loop_turns, "TURN", 0.0)
    looker = _Looker()
    rows = asyncio.run(_looked(_context(in_loop=True), looker))
    assert [row.queue for row in rows] == list(range(QUEUES))
    assert looker.threads == {threading.get_ident()}
    assert all(before < after for before, after in zip(looker.seen, looker.seen[1:], strict=False))


def test_a_look_ends_with_the_server(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loop_turns, "TURN", 0.0)
    context = _context(in_loop=True)
    context.stop.set()
    assert len(asyncio.run(_looked(context, _Looker()))) == 1


def test_reads_have_a_thread_if_the_writer_has_one() -> None:
    looker = _Looker()
    rows = asyncio.run(_looked(_context(in_loop=False), looker))
    assert len(rows) == QUEUES
    assert threading.get_ident() not in looker.threads


def test_short_questions_are_asked_where_they_delay_nobody() -> None:
    for in_loop in (True, False):
        connections: list[int] = []
        readers = SimpleNamespace(connection=lambda seen=connections: seen.append(threading.get_ident()))
        context = cast(Context, SimpleNamespace(readers=readers, writer=SimpleNamespace(in_loop=in_loop)))
        assert asyncio.run(Context.quick_read(context, lambda _: 5)) == 5
        assert (connections == [threading.get_ident()]) is in_loop
