"""A real pool on SQLite for the duties of a server, and rows that they cannot process."""

from __future__ import annotations

import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from pilotage.server.disk_space import DiskSpace
from pilotage.server.failing_rows import FailingRows
from pilotage.server.outside_calls import DirectCalls
from pilotage.server.server_address import ServerAddress
from pilotage.server.signals import Stop, Wake
from pilotage.server.submit_pools import SubmitPools
from pilotage.store.writer.change_watch import ChangeWatch
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
            writer=SimpleNamespace(acall=acall, in_loop=True, changes=ChangeWatch(None)),
            readers=readers,
            quick_read=quick_read,
            clock=lambda: bench.now,
            monotonic=time.monotonic,
            disk=SimpleNamespace(sandbox=SimpleNamespace(), space=DiskSpace({}, time.monotonic)),
            pilots=SimpleNamespace(outside=DirectCalls()),
            address=ServerAddress("", "", "", "http://127.0.0.1:1"),
            work=SimpleNamespace(work_queue=queue.work_queue),
            duties=SimpleNamespace(
                failing=FailingRows(lambda: bench.now),
                retention_ran_at=None,
                submit_pools=SubmitPools(lambda name: 1),
            ),
            wake=Wake(),
            stop=Stop(),
        )

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
