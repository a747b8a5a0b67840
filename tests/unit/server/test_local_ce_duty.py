"""The duty of a local CE tells the adapter which pilots run beside a new one, so that each gets cores of its own."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar, cast

import pytest

from pilotage.outside.batch.adapter import BatchSubmission, Receipt
from pilotage.outside.batch.submission import BatchListing
from pilotage.server.duties.batch_clients import OwnBatchClients
from pilotage.server.duties.ce import CeDuty
from pilotage.server.duties.ces import IDLE_LOCAL_PERIOD, LOCAL_PERIOD, LocalCesDuty
from pilotage.services.director.ce_director import CeDirector
from pilotage.services.director.local_orders import LocalOrders
from tests.unit.server.duty_pool import Pool
from tests.unit.services.bench import NODE, Bench
from tests.unit.services.workqueue.queue_bench import QueueBench


class Machine:
    """An adapter that only notes its submissions."""

    pilot_options: ClassVar[dict[str, str]] = {}
    holds = False
    keeps_ended = False
    place = ""
    index_variable = "PILOTAGE_INDEX"

    def __init__(self) -> None:
        self.submissions: list[BatchSubmission] = []

    def status(self, pilots: Any) -> BatchListing:
        return BatchListing("boot")

    def submit(self, submission: BatchSubmission) -> Receipt:
        self.submissions.append(submission)
        batch_id = f"{len(self.submissions)}:1"
        return Receipt(batch_id, (batch_id,))


@pytest.fixture
def pool(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Pool]:
    bench = Bench(tmp_path)
    yield Pool(QueueBench(bench), monkeypatch)
    bench.end()


def started(pool: Pool, processors: int) -> Sequence[BatchSubmission]:
    """The pilots that one cycle starts on a machine with so many cores."""
    machine = Machine()
    director = CeDirector("local", LocalOrders(replace(NODE, processors=processors)), local=True)
    asyncio.run(CeDuty(pool.context, director, cast(Any, machine), OwnBatchClients(pool.context, 64)).cycle())
    return machine.submissions


def test_each_pilot_knows_the_ones_that_were_started_before_it(pool: Pool) -> None:
    for _ in range(3):
        pool.bench.submit()
    submissions = started(pool, 3)
    assert [submission.neighbours for submission in submissions] == [(), ("1:1",), ("1:1", "2:1")]
    assert not any(submission.flags for submission in submissions)


class CountedCe:
    """The duty of one CE, which notes its cycles."""

    def __init__(self, name: str, cycles: list[str], live: int) -> None:
        self._name, self._cycles, self.live = name, cycles, live

    async def cycle(self) -> None:
        self._cycles.append(self._name)


def test_a_ce_without_pilots_is_left_out_until_it_is_due_or_the_duty_is_woken(pool: Pool) -> None:
    cycles, now = list[str](), [100.0]
    pool.context.monotonic = lambda: now[0]
    pool.bench.pool.policy.ces.clear()
    duty = LocalCesDuty(pool.context, lambda name: pytest.fail(name))
    duty._duties = {
        name: cast(Any, CountedCe(name, cycles, live)) for name, live in (("busy", 1), ("quiet", 0))
    }

    def served(*, woken: bool, later: float) -> list[str]:
        cycles.clear()
        now[0] += later
        duty.woken = woken
        asyncio.run(duty.cycle())
        return list(cycles)

    assert served(woken=True, later=0.0) == ["busy", "quiet"]
    assert served(woken=False, later=LOCAL_PERIOD) == ["busy"]
    assert served(woken=True, later=LOCAL_PERIOD) == ["busy", "quiet"]
    assert served(woken=False, later=IDLE_LOCAL_PERIOD - 1) == ["busy"]
    assert served(woken=False, later=1.0) == ["busy", "quiet"]
    assert duty.period() == LOCAL_PERIOD
