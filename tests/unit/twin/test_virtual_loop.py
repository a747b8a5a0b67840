"""The event loop in virtual time."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Coroutine
from concurrent.futures import Executor, ThreadPoolExecutor
from typing import Any, TypeVar

import pytest

from pilotage.twin.virtual_loop import Standstill, VirtualLoop

BEGIN = 1_700_000_000.0
Result = TypeVar("Result")


def run(work: Coroutine[Any, Any, Result]) -> tuple[Result, float]:
    """The result, and the virtual seconds that it took."""
    loop = VirtualLoop(BEGIN)
    try:
        return loop.run_until_complete(work), loop.time() - BEGIN
    finally:
        loop.close()


def test_a_sleep_takes_virtual_time_only() -> None:
    began = time.process_time()
    _, seconds = run(asyncio.sleep(1_000_000.0))
    assert seconds == pytest.approx(1_000_000.0)
    assert time.process_time() - began < 60


def test_timers_fire_in_the_order_of_their_instants() -> None:
    seen: list[tuple[int, float]] = []

    async def note(number: int, wait: float) -> None:
        await asyncio.sleep(wait)
        seen.append((number, asyncio.get_running_loop().time() - BEGIN))

    async def work() -> None:
        await asyncio.gather(note(1, 30.0), note(2, 0.25), note(3, 86_400.0), note(4, 30.5))

    run(work())
    assert [number for number, _ in seen] == [2, 1, 4, 3]
    assert [instant for _, instant in seen] == pytest.approx([0.25, 30.0, 30.5, 86_400.0])


def test_timers_of_time_that_is_skipped_fire_once_at_its_end() -> None:
    fired: list[float] = []

    async def tick() -> None:
        while True:
            await asyncio.sleep(10.0)
            fired.append(asyncio.get_running_loop().time() - BEGIN)

    async def work() -> None:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualLoop)
        ticking = asyncio.ensure_future(tick())
        await asyncio.sleep(15.0)
        loop.skip_to(BEGIN + 86_400.0)
        loop.skip_to(BEGIN)
        await asyncio.sleep(15.0)
        ticking.cancel()

    run(work())
    assert fired == pytest.approx([10.0, 86_400.0, 86_410.0])


def test_the_clock_stands_still_while_callbacks_run() -> None:
    async def work() -> float:
        begun = asyncio.get_running_loop().time()
        for _ in range(1000):
            await asyncio.sleep(0)
        return asyncio.get_running_loop().time() - begun

    assert run(work()) == (0.0, 0.0)


def test_a_blocking_call_runs_inline_and_takes_no_virtual_time() -> None:
    async def work() -> int:
        return await asyncio.to_thread(lambda: 42)

    assert run(work()) == (42, 0.0)


def test_an_error_of_a_blocking_call_reaches_its_caller() -> None:
    def fail() -> None:
        raise KeyError("lost")

    with pytest.raises(KeyError, match="lost"):
        run(asyncio.to_thread(fail))


def test_a_time_out_ends_a_wait_for_ever() -> None:
    async def work() -> None:
        await asyncio.wait_for(asyncio.Event().wait(), 12.5)

    loop = VirtualLoop(BEGIN)
    try:
        with pytest.raises(TimeoutError):
            loop.run_until_complete(work())
        assert loop.time() - BEGIN == pytest.approx(12.5)
    finally:
        loop.close()


def test_a_wait_that_nothing_can_end_is_an_error() -> None:
    with pytest.raises(Standstill):
        run(asyncio.Event().wait())


def test_calls_of_any_executor_run_in_the_thread_of_the_loop() -> None:
    async def call(executor: Executor | None) -> int:
        return await asyncio.get_running_loop().run_in_executor(executor, threading.get_ident)

    with ThreadPoolExecutor(1) as executor:
        for given in (None, executor):
            assert run(call(given))[0] == threading.get_ident()
