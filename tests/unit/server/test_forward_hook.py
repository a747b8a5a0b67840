"""The site's hook adds arguments to submissions. If it is of no use, nothing is submitted there; other CEs go on."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from pilotage.core.glue.information import CeInformation
from pilotage.core.ids import QueueId
from pilotage.core.provisioning.iteration import BatchOrder
from pilotage.outside.batch.adapter import BatchSubmission, Receipt
from pilotage.server.context import Context
from pilotage.server.duties.batch_clients import OwnBatchClients
from pilotage.server.duties.ce import CeDuty
from pilotage.server.duties.forward_hook import HANG_PAUSE, KEPT, ForwardHook
from pilotage.server.failing_rows import FailingRows
from pilotage.server.outside_calls import DirectCalls
from pilotage.server.server_address import ServerAddress
from pilotage.server.submit_pools import SubmitPools
from pilotage.services.director.ce_director import CeDirector
from pilotage.services.director.ce_status import summaries
from pilotage.services.director.iteration_orders import IterationOrders
from pilotage.services.director.ordering import order_pilots
from pilotage.services.director.submissions import SubmissionIntent
from tests.deadlines import PATIENCE
from tests.paper_batch import PaperBatch
from tests.unit.services.bench import NODE, Bench
from tests.unit.services.test_batch_director import BATCH_POLICY
from tests.unit.services.test_forwarding import HOSTS, SI00
from tests.writer_guard import as_writer


class FlagBatch(PaperBatch):
    """Keeps the flags of its submissions."""

    def __init__(self) -> None:
        super().__init__()
        self.flags: list[tuple[str, ...]] = []

    def submit(self, submission: BatchSubmission) -> Receipt:
        self.flags.append(submission.flags)
        return super().submit(submission)


@pytest.fixture
def hook(tmp_path: Path) -> Callable[[str], Path]:
    def write(text: str) -> Path:
        file = tmp_path / "hook"
        file.write_text(f"#!/bin/sh\n{text}\n")
        file.chmod(0o755)
        return file

    return write


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    home = tmp_path / "home"
    home.mkdir()
    rules = '[ces.{0}.forward]\nGlueHostBenchmarkSI00 = "feature si00_{{}}"\n'
    first = BATCH_POLICY.replace("[ces.batch]\n", f'[ces.batch]\nforward_hook = "{tmp_path}/hook"\n')
    second = '[ces.second]\nsite = "here"\ntype = "slurm"\nowners = "any"\n'
    bench = Bench(home, first + second + rules.format("batch") + rules.format("second"))
    information = CeInformation({}, HOSTS, updated=bench.now, expiry=1e6)
    with as_writer():
        bench.pool.ces.information.update(batch=information, second=information)
    bench.submit(1, requirements=f"other.{SI00} > 500")
    yield bench
    bench.end()


def submitted(bench: Bench, ce: str) -> FlagBatch:
    """One cycle of submission at a CE: its batch system afterwards."""
    director, batch = CeDirector(ce, IterationOrders(NODE.platform)), FlagBatch()
    intents = ordered(bench, director)

    async def acall(work: Callable[[Any], Any]) -> Any:
        return bench.do(work)

    async def submit() -> None:
        context = SimpleNamespace(
            pool=bench.pool,
            writer=SimpleNamespace(acall=acall, in_loop=True),
            clock=lambda: bench.now,
            monotonic=time.monotonic,
            duties=SimpleNamespace(
                submit_pools=SubmitPools(lambda name: bench.pool.policy.director.pool(name).max_threads),
                failing=FailingRows(lambda: 0.0),
            ),
            pilots=SimpleNamespace(outside=DirectCalls()),
            address=ServerAddress("", "", "", "https://127.0.0.1:1"),
        )
        duty = CeDuty(cast(Context, context), director, batch, OwnBatchClients(cast(Context, context), 64))
        try:
            for intent in intents:
                await duty._submit(intent, [])
        finally:
            duty.close()

    asyncio.run(submit())
    return batch


def ordered(bench: Bench, director: CeDirector) -> list[SubmissionIntent]:
    [queue] = bench.pool.queues.index.entries
    order = BatchOrder(QueueId(queue), 1, "private", "alice", "physics", "Batch")
    with as_writer():
        bench.pool.provisioning.orders[director.ce] = (order,)
    return bench.do(lambda tx: order_pilots(director, bench.pool, tx, bench.now))


def trouble(bench: Bench, ce: str) -> str:
    shown = bench.do(lambda tx: summaries(bench.pool.policy, tx.connection, bench.now))
    return next(str(summary) for summary in shown if summary.name == ce)


def test_its_arguments_join_the_flags_of_the_forward_table(bench: Bench, hook: Callable[[str], Path]) -> None:
    hook(
        f'[ "${SI00}_Min" = 501 ] && [ "$PILOTAGE_FLAGS" = --constraint=si00_600 ] && echo --constraint=fast'
    )
    assert submitted(bench, "batch").flags == [("--constraint=si00_600&fast",)]
    assert submitted(bench, "second").flags == [("--constraint=si00_600",)]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("exit 3", "it ended with status 3"),
        ("echo --wrap=id", "no argument that it may print"),
        ("echo hello", "no argument that it may print"),
        ("echo '--constraint=$(id)'", "not allowed"),
    ],
)
def test_a_hook_that_is_of_no_use_stops_its_ce_alone(
    bench: Bench, hook: Callable[[str], Path], text: str, reason: str
) -> None:
    hook(text)
    assert submitted(bench, "batch").jobs == []
    assert reason in trouble(bench, "batch")
    assert submitted(bench, "second").flags == [("--constraint=si00_600",)]
    assert "forward_hook" not in trouble(bench, "second")


def test_a_missing_hook_is_named(bench: Bench) -> None:
    assert submitted(bench, "batch").jobs == []
    assert "it cannot be run" in trouble(bench, "batch")


def test_answers_are_kept_for_a_while_and_failures_are_not(bench: Bench, hook: Callable[[str], Path]) -> None:
    file = hook("exit 1")
    director = CeDirector("batch", IterationOrders(NODE.platform))
    [intent] = ordered(bench, director)
    ce, clock = bench.pool.policy.ces["batch"], [0.0]
    runner = ForwardHook(lambda: clock[0], DirectCalls())
    with pytest.raises(Exception, match="status 1"):
        runner.flags(ce, intent.order)
    hook("echo --tmp=5")
    assert runner.flags(ce, intent.order) == ("--constraint=si00_600", "--tmp=5")
    file.unlink()
    assert runner.flags(ce, intent.order) == ("--constraint=si00_600", "--tmp=5")
    clock[0] = KEPT
    with pytest.raises(Exception, match="cannot be run"):
        runner.flags(ce, intent.order)


def test_a_hook_that_hangs_is_a_refusal(bench: Bench, hook: Callable[[str], Path]) -> None:
    hook("exec sleep 1000")
    [intent] = ordered(bench, CeDirector("batch", IterationOrders(NODE.platform)))
    with pytest.raises(Exception, match="did not end within"):
        ForwardHook(time.monotonic, DirectCalls(), timeout=0.5).flags(
            bench.pool.policy.ces["batch"], intent.order
        )


def test_a_hook_that_hangs_is_not_run_for_each_submission(
    bench: Bench, hook: Callable[[str], Path], tmp_path: Path
) -> None:
    """Each run would hold up the thread of the CE, which also makes the listings of its pilots."""
    hook(f"echo run >> {tmp_path}/runs; exec sleep 1000")
    [intent] = ordered(bench, CeDirector("batch", IterationOrders(NODE.platform)))
    ce, clock = bench.pool.policy.ces["batch"], [0.0]
    runner = ForwardHook(lambda: clock[0], DirectCalls(), timeout=3.0)
    for _ in range(3):
        with pytest.raises(Exception, match="did not end within"):
            runner.flags(ce, intent.order)
    assert (tmp_path / "runs").read_text() == "run\n"
    hook("echo --tmp=5")
    clock[0] = HANG_PAUSE
    assert runner.flags(ce, intent.order) == ("--constraint=si00_600", "--tmp=5")


def test_a_server_that_stops_ends_its_hook_at_once(
    bench: Bench, hook: Callable[[str], Path], tmp_path: Path
) -> None:
    os.mkfifo(tmp_path / "started")
    hook(f"echo > {tmp_path}/started; exec sleep 1000")
    director = CeDirector("batch", IterationOrders(NODE.platform))
    [intent] = ordered(bench, director)
    context = SimpleNamespace(
        writer=SimpleNamespace(in_loop=True),
        monotonic=time.monotonic,
        pilots=SimpleNamespace(outside=DirectCalls()),
        duties=SimpleNamespace(failing=FailingRows(lambda: 0.0)),
    )
    duty = CeDuty(cast(Context, context), director, PaperBatch(), OwnBatchClients(cast(Context, context), 64))
    duty._hook = ForwardHook(time.monotonic, DirectCalls(), timeout=10 * PATIENCE)
    ce = bench.pool.policy.ces["batch"]
    with ThreadPoolExecutor(1) as thread:
        answer = thread.submit(duty._hook.flags, ce, intent.order)
        (tmp_path / "started").read_text()
        duty.close()
        with pytest.raises(Exception, match="the server stops"):
            answer.result(PATIENCE)
