"""Submit pools bound the submissions that run at the same time, over all CEs of a pool."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

from pilotage.core.policy import parse
from pilotage.outside.batch.adapter import BatchSubmission, Receipt, Shape
from pilotage.server.context import Context
from pilotage.server.duties.batch_clients import OwnBatchClients
from pilotage.server.duties.ce import CeDuty
from pilotage.server.failing_rows import FailingRows
from pilotage.server.outside_calls import DirectCalls
from pilotage.server.server_address import ServerAddress
from pilotage.server.submit_pools import SubmitPools
from pilotage.services.director.ce_director import CeDirector
from pilotage.services.director.iteration_orders import IterationOrders
from pilotage.services.director.submissions import SubmissionIntent, SubmissionOrder
from pilotage.services.policy.apply import apply_policy
from tests.deadlines import PATIENCE
from tests.paper_batch import PaperBatch
from tests.unit.services.bench import NODE, POLICY, Bench

CES = 6
PLACES = "".join(f'[ces.c{number}]\nsite = "here"\ntype = "slurm"\nowners = "any"\n' for number in range(CES))
POOL = "[director.pools.Batch]\nmaxThreadsInPool = {}\n"


class BlockedBatch(PaperBatch):
    """Submissions stay in the call until the test lets them go."""

    def __init__(self, entered: Callable[[], None]) -> None:
        super().__init__()
        self.entered, self.gate = entered, threading.Event()
        self.within = 0

    def submit(self, submission: BatchSubmission) -> Receipt:
        self.within += 1
        self.entered()
        self.gate.wait(PATIENCE)
        self.within -= 1
        return super().submit(submission)


class Site:
    """CEs of one pool, each with a duty of its own and a batch system that blocks."""

    def __init__(self, bench: Bench) -> None:
        self.bench = bench
        self.pools = SubmitPools(lambda name: bench.pool.policy.director.pool(name).max_threads)
        self.entries: asyncio.Queue[None] = asyncio.Queue()
        loop = asyncio.get_running_loop()
        self.batches = [
            BlockedBatch(lambda: cast(None, loop.call_soon_threadsafe(self.entries.put_nowait, None)))
            for _ in range(CES)
        ]
        context = cast(Context, self._context())
        self.duties = [
            CeDuty(
                context,
                CeDirector(f"c{number}", IterationOrders(NODE.platform)),
                batch,
                OwnBatchClients(context, 64),
            )
            for number, batch in enumerate(self.batches)
        ]

    def _context(self) -> SimpleNamespace:
        bench = self.bench

        async def acall(work: Callable[[Any], Any]) -> Any:
            return bench.do(work)

        return SimpleNamespace(
            pool=bench.pool,
            writer=SimpleNamespace(acall=acall, in_loop=True),
            clock=lambda: bench.now,
            monotonic=time.monotonic,
            duties=SimpleNamespace(submit_pools=self.pools, failing=FailingRows(lambda: 0.0)),
            pilots=SimpleNamespace(outside=DirectCalls()),
            address=ServerAddress("", "", "", "https://127.0.0.1:1"),
        )

    def submit_everywhere(self) -> list[asyncio.Task[Any]]:
        order = SubmissionOrder(1, Shape(1, 0, 600.0), "generic", "Batch")
        intents = [SubmissionIntent(f"s{n}", "secret", (), order) for n in range(CES)]
        submissions = zip(self.duties, intents, strict=True)
        return [asyncio.create_task(duty._submit(intent, [])) for duty, intent in submissions]

    async def enter(self, number: int) -> None:
        """Wait until so many more submissions are in their call."""
        for _ in range(number):
            await asyncio.wait_for(self.entries.get(), PATIENCE)

    @property
    def within(self) -> int:
        return sum(batch.within for batch in self.batches)

    async def end(self, tasks: list[asyncio.Task[Any]]) -> None:
        for batch in self.batches:
            batch.gate.set()
        await asyncio.gather(*tasks)
        for duty in self.duties:
            duty.close()


@contextmanager
def _bench(folder: Path, most: int) -> Iterator[Bench]:
    bench = Bench(folder, POLICY + PLACES + POOL.format(most))
    yield bench
    bench.end()


async def _drain(site: Site, tasks: list[asyncio.Task[Any]], most: int) -> None:
    """End one submission after the other: each lets exactly one other in."""
    for left in range(CES - most, -1, -1):
        assert site.within == most
        assert site.pools.load() == {"Batch": most + left}
        next(batch for batch in site.batches if batch.within).gate.set()
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        tasks = [task for task in tasks if not task.done()]
        if not left:
            break
        await site.enter(1)


def test_a_pool_runs_no_more_submissions_than_its_threads_whatever_the_number_of_ces(tmp_path: Path) -> None:
    async def run(bench: Bench) -> None:
        site = Site(bench)
        tasks = site.submit_everywhere()
        try:
            await site.enter(2)
            await _drain(site, tasks, 2)
        finally:
            await site.end(tasks)
        assert site.pools.load() == {"Batch": 0}
        assert [len(batch.jobs) for batch in site.batches] == [1] * CES

    with _bench(tmp_path, 2) as bench:
        asyncio.run(run(bench))


def test_a_policy_that_allows_more_threads_counts_for_submissions_that_wait(tmp_path: Path) -> None:
    async def run(bench: Bench) -> None:
        site = Site(bench)
        tasks = site.submit_everywhere()
        try:
            await site.enter(1)
            text = POLICY + PLACES + POOL.format(4)
            bench.do(lambda tx: apply_policy(bench.pool, tx, parse(text), text, by="a", reason="", now=1.0))
            site.pools.admit()
            await site.enter(3)
            assert site.within == 4
        finally:
            await site.end(tasks)

    with _bench(tmp_path, 1) as bench:
        asyncio.run(run(bench))


def test_a_waiting_submission_that_is_cancelled_takes_no_turn() -> None:
    """Its task has not run since the cancellation when the turn is given."""

    async def run() -> None:
        pools, order = SubmitPools(lambda _: 1), list[str]()

        async def submit(name: str) -> None:
            async with pools.turn("Batch"):
                order.append(name)

        async with pools.turn("Batch"):
            first, second = asyncio.create_task(submit("first")), asyncio.create_task(submit("second"))
            await asyncio.sleep(0)
            first.cancel()
        await second
        assert (await asyncio.gather(first, return_exceptions=True))[0].__class__ is asyncio.CancelledError
        assert order == ["second"]
        assert pools.load() == {"Batch": 0}

    asyncio.run(run())
