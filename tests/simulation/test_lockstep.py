"""Blocking programs and clocks of nodes in virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from random import Random

import pytest

from tests.simulation.lockstep import LockstepProgram
from tests.simulation.node_clock import NodeClock
from tests.simulation.processes import Outside, Process, SimulationLoop


def _in_loop(live: Callable[[SimulationLoop], Awaitable[None]]) -> None:
    loop = SimulationLoop(1000.0, Random(1))
    try:
        loop.run_until_complete(live(loop))
    finally:
        loop.close()


class _Sleeper:
    """A program that notes when it wakes up."""

    def __init__(self, loop: SimulationLoop) -> None:
        self._loop = loop
        self.woke: list[float] = []
        self.ends: list[BaseException | None] = []
        self.program = LockstepProgram(self._run, self.ends.append)

    def _run(self) -> None:
        for _ in range(3):
            answer = self.program.wait_for(lambda: self._loop.call_later(10, self.program.go_on, "later"))
            self.woke.append(self._loop.time())
            assert answer == "later"
        raise ValueError("over")


def test_a_blocking_program_waits_in_virtual_time() -> None:
    async def live(loop: SimulationLoop) -> None:
        sleeper = _Sleeper(loop)
        sleeper.program.start()
        await asyncio.sleep(100)
        assert sleeper.woke == pytest.approx([1010, 1020, 1030])
        assert [type(error) for error in sleeper.ends] == [ValueError]

    _in_loop(live)


def test_a_blocking_program_that_is_killed_does_nothing_any_more() -> None:
    async def live(loop: SimulationLoop) -> None:
        sleeper = _Sleeper(loop)
        sleeper.program.start()
        await asyncio.sleep(15)
        sleeper.program.kill()
        await asyncio.sleep(100)
        assert sleeper.woke == pytest.approx([1010])
        assert not sleeper.ends

    _in_loop(live)


def test_the_clock_of_a_node_goes_wrong() -> None:
    async def live(loop: SimulationLoop) -> None:
        clock, woke = NodeClock(Outside(loop), 50.0, 1.02), []
        assert clock.time() == pytest.approx(1050)
        clock.call_at(clock.time() + 102, lambda: woke.append(loop.time()))
        await asyncio.sleep(200)
        assert woke == pytest.approx([1100], abs=0.01)
        assert clock.time() == pytest.approx(1254, abs=0.01)

    _in_loop(live)


def test_what_a_frozen_pilot_has_planned_happens_after_the_freeze() -> None:
    async def live(loop: SimulationLoop) -> None:
        clock, woke = NodeClock(Outside(loop), 0.0, 1.0), []
        clock.call_at(1010.0, lambda: woke.append(loop.time()))
        clock.call_at(1020.0, lambda: woke.append(0.0)).cancel()
        clock.frozen_until = 1060.0
        await asyncio.sleep(200)
        assert woke == pytest.approx([1060], abs=0.01)

    _in_loop(live)


def test_a_frozen_process_goes_on_with_all_that_came_meanwhile() -> None:
    async def live(loop: SimulationLoop) -> None:
        process, done = Process("a server", loop), []
        with process.entered():
            loop.call_later(5, lambda: done.append(loop.time()))
            loop.create_task(asyncio.sleep(10)).add_done_callback(lambda _: done.append(loop.time()))
        process.frozen_until = 1050.0
        await asyncio.sleep(40)
        assert not done
        await asyncio.sleep(40)
        assert done == pytest.approx([1050, 1060])
        process.bury()

    _in_loop(live)
