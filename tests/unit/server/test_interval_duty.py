"""The duty that records waiting jobs and shares over time."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pilotage.server.duties.intervals import IntervalDuty
from pilotage.services.pool.records import RecordedReason
from tests.unit.server.duty_pool import Pool
from tests.unit.services.bench import Bench
from tests.unit.services.workqueue.queue_bench import POLICY, QueueBench


@pytest.fixture
def pool(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Pool]:
    bench = Bench(tmp_path, POLICY, now=86400.0 * 20_000)
    made = Pool(QueueBench(bench), monkeypatch)
    begun = bench.now
    made.context.monotonic = lambda: bench.now - begun
    made.context.duties.book = SimpleNamespace(as_of=None)
    yield made
    bench.close()


def cycle(pool: Pool, duty: IntervalDuty, seconds: float) -> list[tuple[Any, ...]]:
    """A cycle some seconds later. Returns (reason, job seconds) of the whole pool."""
    pool.bench.now += seconds
    asyncio.run(duty.cycle())
    sql = (
        "SELECT reason, job_seconds FROM waiting_intervals WHERE span = 86400 AND owner = '' ORDER BY reason"
    )
    return pool.queue.sql(sql)


def test_the_time_since_the_last_record_is_recorded(pool: Pool) -> None:
    pool.bench.submit(3)
    [queue] = pool.bench.pool.queues.index.entries
    duty = IntervalDuty(pool.context)
    # The reasons are not read yet.
    assert cycle(pool, duty, 5) == []
    pool.bench.set("queues", recorded_reasons={})
    assert cycle(pool, duty, 55) == [("", 3 * 60)]
    pool.bench.set("queues", recorded_reasons={queue: RecordedReason("slots", "", 0.0)})
    assert cycle(pool, duty, 60) == [("", 3 * 60), ("slots", 3 * 60)]
    assert pool.queue.sql("SELECT name, seconds, entitled FROM share_intervals WHERE span = 3600") == [
        ("physics", 120, 120), ("alice", 120, 120)
    ]  # fmt: skip


def test_of_two_servers_each_minute_is_recorded_once(pool: Pool) -> None:
    """The second one takes over, and had not looked for long."""
    pool.bench.submit(1)
    pool.bench.set("queues", recorded_reasons={})
    first, second = IntervalDuty(pool.context), IntervalDuty(pool.context)
    for _ in range(5):
        cycle(pool, first, 60)
    assert cycle(pool, second, 60) == [("", 360)]
    assert cycle(pool, first, 0) == [("", 360)]


def test_a_failed_record_is_made_up_for(pool: Pool) -> None:
    pool.bench.submit(1)
    pool.bench.set("queues", recorded_reasons={})
    duty, acall, calls = IntervalDuty(pool.context), pool.context.writer.acall, iter(range(9))

    async def refuse_second(request: Any) -> Any:
        if next(calls) == 1:
            raise OSError("the disk is full")
        return await acall(request)

    pool.context.writer.acall = refuse_second
    with pytest.raises(OSError, match="disk"):
        cycle(pool, duty, 60)
    assert cycle(pool, duty, 60) == [("", 120)]
