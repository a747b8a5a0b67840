"""Many leases that end at once: they are taken back a few at a time, and other requests run between."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence

import pytest

from pilotage.core.ids import PilotId
from pilotage.core.slice_pace import FIRST_SLICE, LARGEST_SLICE, SlicePace
from pilotage.server.duties.row_by_row import RowByRow
from pilotage.server.failing_rows import DutyFailures
from pilotage.services.pilots import leases
from pilotage.store.writer.transaction import Transaction
from tests.unit.services.bench import LEASE, Bench

PILOTS = 120


def made(bench: Bench) -> RowByRow:
    return RowByRow(bench.writer, DutyFailures("leases", lambda: bench.now), time.monotonic)


def test_a_match_is_served_between_two_slices_of_a_network_cut(bench: Bench) -> None:
    jobs = bench.submit(PILOTS + 1)
    lost = [bench.pilot() for _ in range(PILOTS)]
    for pilot in lost:
        pilot.hold()
    bench.now += LEASE - 1.0
    other = bench.pilot()
    bench.now += 2.0
    order: list[str] = []

    async def cycle() -> int:
        rows, loop = (
            made(bench),
            asyncio.get_running_loop(),
        )
        tasks: list[asyncio.Task[None]] = []
        take = other.asking(other.request(take=other.asked()))

        async def match() -> None:
            assert len((await bench.writer.acall(take)).offers) == 1
            order.append("match")

        def act(tx: Transaction, part: Sequence[PilotId]) -> int:
            if not order:
                loop.call_soon_threadsafe(lambda: tasks.append(asyncio.create_task(match())))
            order.append("slice")
            return leases.expire(bench.pool, tx, bench.now, part)

        done = await rows.step("expire leases", lambda tx: leases.over(bench.pool.peers, tx, bench.now), act)
        await asyncio.gather(*tasks)
        return done

    bench.writer.start()
    try:
        assert asyncio.run(cycle()) == PILOTS
    finally:
        bench.writer.stop()
    assert order.index("match") <= 3, order
    assert order[-1] == "slice"
    assert [bench.state(job) for job in jobs].count("Rescheduled") == PILOTS


def test_more_pilots_than_one_search_returns_end_in_one_cycle(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(leases, "MOST", 10)
    for _ in range(25):
        bench.pilot()
    bench.now += LEASE + 1.0
    bench.writer.start()
    try:
        ended = asyncio.run(
            made(bench).step(
                "expire leases",
                lambda tx: leases.over(bench.pool.peers, tx, bench.now),
                lambda tx, gone: leases.expire(bench.pool, tx, bench.now, gone),
            )
        )
    finally:
        bench.writer.stop()
    assert ended == 25


def test_a_row_that_its_step_leaves_as_it_is_does_not_hold_the_cycle(bench: Bench) -> None:
    calls: list[Sequence[int]] = []

    def act(tx: Transaction, part: Sequence[int]) -> int:
        calls.append(part)
        return 0

    bench.writer.start()
    try:
        assert asyncio.run(made(bench).step("nothing", lambda tx: [1, 2], act)) == 0
    finally:
        bench.writer.stop()
    assert calls == [[1, 2]]


def test_slices_adapt_to_the_time_that_their_rows_take() -> None:
    now, cost = 0.0, 0.0001

    def work(rows: int) -> int:
        nonlocal now
        now += rows * cost
        return rows

    pace = SlicePace(0.002, lambda: now)
    sizes = []
    for _ in range(10):
        sizes.append(pace.size)
        pace.measured(pace.size, lambda: work(pace.size))
    assert sizes[0] == FIRST_SLICE
    assert sizes[-1] == 20
    cost = 0.01
    pace.measured(20, lambda: work(20))
    assert pace.size == 1, "one row that takes longer than the aim goes alone"
    cost = 0.0
    for _ in range(20):
        pace.measured(pace.size, lambda: work(pace.size))
    assert pace.size == LARGEST_SLICE
