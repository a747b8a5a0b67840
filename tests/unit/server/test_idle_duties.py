"""A duty that waits for nothing but changes of the store runs after the next change, and not before."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from math import inf
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pilotage.server.disk_space import DiskSpace
from pilotage.server.duties.duty import Duty
from pilotage.server.duties.loop import every
from pilotage.server.failing_rows import FailingRows
from pilotage.server.signals import Stop
from pilotage.store.writer.transaction import Transaction
from pilotage.store.writer.writer import Writer
from tests.deadlines import PATIENCE
from tests.unit.services.bench import Bench

PERIOD = 0.001


class Counted(Duty):
    """Counts its cycles, and is idle for the seconds of a list after each."""

    name = "counted"
    every = PERIOD

    def __init__(self, context: Any) -> None:
        super().__init__(context)
        self.cycles = 0
        self.idle = -inf
        self.fails = False
        self.ran = asyncio.Event()

    async def work(self) -> None:
        self.cycles += 1
        self.ran.set()
        self.idle_until = self._context.monotonic() + self.idle
        if self.fails:
            raise ValueError("a cycle that fails")

    async def next_cycle(self) -> None:
        self.ran.clear()
        await asyncio.wait_for(self.ran.wait(), PATIENCE)


def change(tx: Transaction) -> None:
    tx.connection.execute("UPDATE instance SET alive_at = alive_at")


Act = Callable[[Counted, Writer, asyncio.Event], Awaitable[None]]


@pytest.fixture
def run(tmp_path: Path) -> Callable[[Act], None]:
    """Run a duty beside a writer in the loop, and act on both."""
    bench = Bench(tmp_path)

    async def play(act: Act) -> None:
        writer, wake, stop = Writer(bench.connection), asyncio.Event(), Stop()
        writer.move_to_loop(asyncio.get_running_loop())
        context: Any = SimpleNamespace(
            writer=writer,
            monotonic=time.monotonic,
            disk=SimpleNamespace(space=DiskSpace({}, time.monotonic)),
            duties=SimpleNamespace(failing=FailingRows(lambda: 0.0)),
            stop=stop,
        )
        duty = Counted(context)
        running = asyncio.create_task(every(context, duty, wake))
        await act(duty, writer, wake)
        stop.set()
        await asyncio.wait_for(running, PATIENCE)
        writer.stop()

    return lambda act: asyncio.run(play(act))


async def rest(duty: Counted, writer: Writer) -> int:
    """Wait until the duty rests; returns the number of its cycles."""
    while not writer.changes._watchers:
        await asyncio.sleep(0)
    return duty.cycles


async def settle(duty: Counted, writer: Writer) -> int:
    """Let the duty be idle; returns the number of its cycles."""
    duty.idle = inf
    return await rest(duty, writer)


def test_an_idle_duty_runs_after_each_change_only(run: Callable[[Act], None]) -> None:
    async def act(duty: Counted, writer: Writer, wake: asyncio.Event) -> None:
        before = await settle(duty, writer)
        await writer.acall(lambda tx: tx.connection.execute("SELECT 1").fetchone())
        assert await rest(duty, writer) == before
        for number in range(1, 4):
            await writer.acall(change)
            await duty.next_cycle()
            assert await rest(duty, writer) == before + number

    run(act)


def test_a_wake_an_instant_and_the_stop_end_its_rest(run: Callable[[Act], None]) -> None:
    async def act(duty: Counted, writer: Writer, wake: asyncio.Event) -> None:
        await settle(duty, writer)
        wake.set()
        await duty.next_cycle()
        duty.idle = 2 * PERIOD
        wake.set()
        await duty.next_cycle()
        await duty.next_cycle()
        await settle(duty, writer)

    run(act)


def test_a_change_during_the_cycle_is_not_missed(run: Callable[[Act], None]) -> None:
    async def act(duty: Counted, writer: Writer, wake: asyncio.Event) -> None:
        before, original = await settle(duty, writer), duty.work

        async def changing() -> None:
            await original()
            if duty.cycles == before + 1:
                await writer.acall(change)

        duty.work = changing  # type: ignore[method-assign]
        wake.set()
        await duty.next_cycle()
        await duty.next_cycle()
        assert await rest(duty, writer) == before + 2

    run(act)


def test_a_cycle_that_fails_is_repeated(run: Callable[[Act], None]) -> None:
    async def act(duty: Counted, writer: Writer, wake: asyncio.Event) -> None:
        await settle(duty, writer)
        duty.fails = True
        wake.set()
        for _ in range(3):
            await duty.next_cycle()

    run(act)
