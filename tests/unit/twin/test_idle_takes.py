"""Takes that found nothing wait for a change."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Iterator

import pytest

from pilotage.twin.idle_takes import IdleTakes
from pilotage.twin.virtual_loop import VirtualLoop


class Asking:
    """A pilot that counts its requests. `found`: whether a request finds a job."""

    def __init__(self, takes: IdleTakes, found: Callable[[], bool]) -> None:
        self._takes, self._found = takes, found
        self.asked = 0

    def begin(self) -> None:
        self._takes.asks(self)
        self._takes.wait(self)

    def take_soon(self) -> None:
        self.asked += 1
        self._takes.asks(self)
        if self._found():
            self._takes.served(1)
        else:
            self._takes.wait(self)


@pytest.fixture
def loop() -> Iterator[VirtualLoop]:
    loop = VirtualLoop(0.0)
    yield loop
    loop.close()


def idle(loop: VirtualLoop, count: int, found: Callable[[], bool]) -> tuple[IdleTakes, list[Asking]]:
    takes = IdleTakes(loop, random.Random(1), 2.0)
    pilots = [Asking(takes, found) for _ in range(count)]
    for pilot in pilots:
        pilot.begin()
    return takes, pilots


def run(loop: VirtualLoop, seconds: float) -> None:
    loop.run_until_complete(asyncio.sleep(seconds))


def test_nobody_asks_while_nothing_changes(loop: VirtualLoop) -> None:
    _, pilots = idle(loop, 10, lambda: False)
    run(loop, 10_000.0)
    assert [pilot.asked for pilot in pilots] == [0] * 10


def test_after_a_change_each_asks_once_until_the_next(loop: VirtualLoop) -> None:
    takes, pilots = idle(loop, 10, lambda: False)
    takes.changed()
    run(loop, 100.0)
    assert [pilot.asked for pilot in pilots] == [1] * 10
    takes.changed()
    run(loop, 100.0)
    assert [pilot.asked for pilot in pilots] == [2] * 10


def test_as_many_ask_as_there_are_jobs(loop: VirtualLoop) -> None:
    takes, pilots = idle(loop, 10, lambda: True)
    takes.changed(3)
    run(loop, 100.0)
    assert sum(pilot.asked for pilot in pilots) == 3


def test_a_job_that_fits_few_nodes_finds_one_of_them(loop: VirtualLoop) -> None:
    takes, pilots = idle(loop, 10, lambda: pilots[7].asked == 1)
    takes.changed(1)
    run(loop, 100.0)
    assert pilots[7].asked == 1
    assert sum(pilot.asked for pilot in pilots) <= 10


def test_a_pilot_that_has_ended_asks_no_more(loop: VirtualLoop) -> None:
    takes, pilots = idle(loop, 3, lambda: False)
    takes.forget(pilots[1])
    takes.changed()
    run(loop, 100.0)
    assert [pilot.asked for pilot in pilots] == [1, 0, 1]
