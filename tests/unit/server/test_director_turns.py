"""An iteration of the director is prepared in short turns, between which anything may happen."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from itertools import count
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any

import pytest

from pilotage.core.provisioning.demand import DemandQueue
from pilotage.core.provisioning.iteration import in_random_order
from pilotage.core.queues.identity import QueueIdentity
from pilotage.server.duties.director import compute_iteration
from pilotage.server.loop_turns import TURN, run_turn
from pilotage.services.director import demand
from pilotage.services.director.demand import DemandCounts, prepare, read_counts
from tests.unit.services.bench import POLICY
from tests.unit.services.test_director_iteration import CES, DIRECTOR, Place

QUEUES = 8


@pytest.fixture
def place(tmp_path: Path) -> Place:
    made = Place(tmp_path)
    for number in range(QUEUES):
        cpu_time = (500, 5000, 50000, 300000)[number % 4]
        made.bench.submit(1 + number, cpu_time=cpu_time, owner=("alice", "bob")[number // 4])
    return made


def counts_of(place: Place) -> DemandCounts:
    bench = place.bench
    return read_counts(bench.connection, bench.pool.policy, {}, bench.now)


def test_each_queue_and_each_ce_is_a_step(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    def steps() -> int:
        return sum(1 for _ in prepare(place.bench.pool, counts_of(place), {}, place.bench.now))

    # The first iteration evaluates Requirements, which later ones remember.
    steps()
    at_once = steps()
    monkeypatch.setattr(demand, "PART", 1)
    monkeypatch.setattr(demand, "CES_AT_ONCE", 1)
    ces = len(place.bench.pool.policy.ces)
    assert steps() >= at_once + QUEUES - 1 + ces - 1


def test_a_turn_ends_after_its_time_and_the_last_one_has_the_iteration(place: Place) -> None:
    steps = prepare(place.bench.pool, counts_of(place), {}, place.bench.now)
    ticks, turns = count(0.0, TURN * 0.6), 0
    while (work := run_turn(steps, lambda: next(ticks))) is None:
        turns += 1
    assert turns >= 3
    assert len(work.facts.queues) == QUEUES
    assert sum(1 for _ in steps) == 0


def test_a_policy_that_comes_in_a_pause_is_the_one_of_the_iteration(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(demand, "CES_AT_ONCE", 1)
    steps = prepare(place.bench.pool, counts_of(place), {}, place.bench.now)
    next(steps)
    place.apply(POLICY + CES.partition("[ces.bound]")[0] + DIRECTOR)
    *_, work = steps
    assert work is not None
    assert work.policy is place.bench.pool.policy
    assert [ce.name for ce in work.facts.ces] == sorted(place.bench.pool.policy.ces)
    assert "bound" not in place.bench.pool.policy.ces


def test_each_queue_is_drawn_once_in_an_order_that_the_seed_decides() -> None:
    queues = [DemandQueue(number, QueueIdentity("ann", "home"), 1.0, 1) for number in range(50)]  # type: ignore[arg-type]
    orders = [[queue.id for queue in in_random_order(queues, Random(seed))] for seed in (1, 1, 2)]
    assert orders[0] == orders[1] != orders[2]
    assert all(sorted(order) == list(range(50)) for order in orders)


def test_a_turn_that_is_run_again_after_a_failed_commit_does_not_end_the_iteration(place: Place) -> None:
    bench = place.bench

    class TwiceWriter:
        """Runs each request again, as after the failure of its group."""

        in_loop = True

        async def acall(self, request: Callable[[Any], Any]) -> Any:
            bench.do(request)
            return bench.do(request)

    context: Any = SimpleNamespace(
        pool=bench.pool,
        writer=TwiceWriter(),
        readers=SimpleNamespace(connection=lambda: bench.connection),
        clock=lambda: bench.now,
        monotonic=lambda: 0.0,
        duties=SimpleNamespace(submit_pools=SimpleNamespace(load=dict)),
    )

    async def live() -> None:
        counts = counts_of(place)
        with pytest.MonkeyPatch.context() as patch:
            # The connection of the bench belongs to one thread.
            patch.setattr("pilotage.server.duties.director.read_counts", lambda *_: counts)
            work = await compute_iteration(context, 1)
        assert len(work.facts.queues) == QUEUES

    asyncio.run(live())
