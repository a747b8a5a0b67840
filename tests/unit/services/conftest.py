from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests import writer_guard
from tests.unit.services.bench import POLICY, Bench, MakeBench
from tests.unit.services.workqueue.queue_bench import POLICY as QUEUE_POLICY
from tests.unit.services.workqueue.queue_bench import QueueBench

if TYPE_CHECKING:
    from tests.unit.services.test_batch_director import Site


@pytest.fixture(autouse=True)
def only_the_writer() -> Iterator[None]:
    """Fail the test if another thread than the writer's changes a pool."""
    with writer_guard.active():
        yield


@pytest.fixture
def bench_policy() -> str:
    """The policy of `bench`; modules have others."""
    return POLICY


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.slow)])
def bench(request: pytest.FixtureRequest, tmp_path: Path, bench_policy: str) -> Iterator[Bench]:
    made = Bench(tmp_path, bench_policy, store=request.param)
    yield made
    made.check()
    made.end()


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.slow)])
def queue(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[QueueBench]:
    with writer_guard.active():
        made = Bench(tmp_path, QUEUE_POLICY, store=request.param)
        yield QueueBench(made)
        made.check()
        made.end()


@pytest.fixture
def make(tmp_path: Path) -> Iterator[MakeBench]:
    """Makes a bench under another policy."""
    made: list[Bench] = []

    def one(policy: str) -> Bench:
        made.append(Bench(tmp_path, policy))
        return made[-1]

    yield one
    for bench in made:
        bench.check()
        bench.close()


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    """A server with one batch system."""
    from tests.unit.services.test_batch_director import Site

    made = Site(tmp_path)
    yield made
    made.close()
