"""A process that has died does nothing any more."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from random import Random

import pytest

from pilotage.server.daemon_threads import DaemonThreads
from tests.simulation.processes import Process, ProcessDied, SimulationLoop


def _in_loop(live: Callable[[SimulationLoop, Process], Awaitable[None]]) -> None:
    loop = SimulationLoop(0.0, Random(1))
    process = Process("a server", loop)
    try:
        loop.run_until_complete(live(loop, process))
    finally:
        process.die()
        process.bury()
        loop.close()


def test_callbacks_timers_and_tasks_of_a_dead_process_do_not_run() -> None:
    done: list[str] = []

    async def work() -> None:
        done.append("began")
        try:
            await asyncio.sleep(10)
            done.append("slept")
        finally:
            done.append("closed")

    async def live(loop: SimulationLoop, process: Process) -> None:
        with process.entered():
            loop.create_task(work())
            loop.call_later(5, done.append, "timer")
        await asyncio.sleep(1)
        with process.entered():
            loop.call_soon(done.append, "callback")
        process.die()
        await asyncio.sleep(100)
        assert done == ["began"]

    _in_loop(live)


def test_what_a_process_begins_belongs_to_it_however_far_down() -> None:
    done: list[str] = []

    async def deeper() -> None:
        await asyncio.sleep(1)
        asyncio.get_running_loop().call_later(1, done.append, "deep")

    async def work() -> None:
        await asyncio.gather(deeper(), asyncio.to_thread(lambda: None))

    async def live(loop: SimulationLoop, process: Process) -> None:
        with process.entered():
            loop.create_task(work())
        loop.call_later(1.5, process.die)
        await asyncio.sleep(100)
        assert not done

    _in_loop(live)


def test_a_command_that_has_begun_tells_a_dead_process_nothing() -> None:
    told: list[str] = []

    async def live(loop: SimulationLoop, process: Process) -> None:
        def command() -> str:
            process.die()
            raise ProcessDied

        async def work() -> None:
            told.append(await loop.run_in_executor(DaemonThreads("commands"), command))

        with process.entered():
            loop.create_task(work())
        await asyncio.sleep(100)
        assert not process.alive
        assert not told

    _in_loop(live)


def test_errors_of_a_living_process_are_heard() -> None:
    heard: list[object] = []

    def fail() -> None:
        raise ValueError("a mistake")

    async def live(loop: SimulationLoop, process: Process) -> None:
        loop.set_exception_handler(lambda _, found: heard.append(found["exception"]))
        with process.entered():
            loop.call_soon(fail)
        await asyncio.sleep(1)

    _in_loop(live)
    assert [type(error) for error in heard] == [ValueError]


def test_a_task_keeps_its_context_when_its_process_was_frozen() -> None:
    duty: ContextVar[str] = ContextVar("duty", default="")
    seen: list[str] = []

    async def work() -> None:
        token = duty.set("first")
        for _ in range(3):
            await asyncio.sleep(1)
            seen.append(duty.get())
        duty.reset(token)
        seen.append(duty.get())

    async def live(loop: SimulationLoop, process: Process) -> None:
        process.frozen_until = 5.0
        with process.entered():
            loop.create_task(work())
        await asyncio.sleep(7)
        process.frozen_until = 10.0
        await asyncio.sleep(100)

    _in_loop(live)
    assert seen == ["first", "first", "first", ""]


def test_the_process_is_told_of_its_death_once() -> None:
    deaths: list[str] = []
    process = Process("a server")
    process.at_death(lambda: deaths.append("told"))
    process.die()
    process.die()
    assert deaths == ["told"]


@pytest.mark.parametrize("delay", [0.0, 3.0])
def test_a_task_is_not_collected_before_it_is_buried(delay: float) -> None:
    closed: list[str] = []

    async def work() -> None:
        try:
            await asyncio.sleep(1000)
        finally:
            closed.append("closed")

    async def live(loop: SimulationLoop, process: Process) -> None:
        with process.entered():
            loop.create_task(work())
        await asyncio.sleep(1)
        process.die()
        await asyncio.sleep(delay)
        assert not closed
        process.bury()
        assert closed == ["closed"]

    _in_loop(live)
