"""A real pool on SQLite for the duties of a server, and rows that they cannot process."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from pilotage.server.disk_space import DiskSpace
from pilotage.server.failing_rows import FailingRows
from pilotage.store.writer.transaction import Transaction
from tests.unit.services.request_bench import RequestBench
from tests.unit.services.workqueue.queue_bench import QueueBench

BAD = "the poisoned row"


class Pool:
    """A real pool on SQLite, and a context of it."""

    def __init__(self, queue: QueueBench, monkeypatch: pytest.MonkeyPatch) -> None:
        self.queue, self.bench, self.monkeypatch = queue, queue.bench, monkeypatch
        self.requests = RequestBench(queue.bench)
        bench, readers = queue.bench, queue.bench.readers()

        async def acall(request: Callable[[Transaction], Any]) -> Any:
            return bench.do(request)

        async def quick_read(query: Callable[[Any], Any]) -> Any:
            return query(readers.connection())

        self.context: Any = SimpleNamespace(
            pool=bench.pool,
            writer=SimpleNamespace(acall=acall),
            readers=readers,
            quick_read=quick_read,
            clock=lambda: bench.now,
            in_loop=True,
            stop=asyncio.Event(),
            space=DiskSpace({}),
            failing=FailingRows(lambda: bench.now),
            work_queue=queue.queue,
            retention_ran_at=None,
            ended_by=None,
            sandbox=SimpleNamespace(),
        )
        for wake in ("director", "intake", "release", "shares", "locations"):
            setattr(self.context, f"wake_{wake}", asyncio.Event())

    def spoil_request(self, request: int) -> None:
        """Nobody can read its specification any more."""
        self.queue.run("UPDATE requests SET specification = '{' WHERE id = ?", request)

    def refuse(self, module: Any, name: str, is_bad: Callable[..., bool]) -> list[tuple[Any, ...]]:
        """Let a use case fail for some arguments. Returns the arguments of all calls that did not fail."""
        original, passed = getattr(module, name), list[tuple[Any, ...]]()

        def act(*arguments: Any, **more: Any) -> Any:
            if is_bad(*arguments, **more):
                raise ValueError(BAD)
            passed.append(arguments)
            return original(*arguments, **more)

        self.monkeypatch.setattr(module, name, act)
        return passed
