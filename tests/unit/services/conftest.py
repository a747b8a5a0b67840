from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from pilotage.store.cluster.id_allocator import SequentialIds
from pilotage.store.engine.connection import WriterConnection
from pilotage.store.writer.writer import Writer
from tests import decision_guard, writer_guard
from tests.unit.services.bench import POLICY, Bench, MakeBench
from tests.unit.services.workqueue.queue_bench import POLICY as QUEUE_POLICY
from tests.unit.services.workqueue.queue_bench import QueueBench
from tests.unit.services.workqueue.race import Race, Servers

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
def servers(tmp_path: Path) -> Iterator[Servers]:
    first = Bench(tmp_path, QUEUE_POLICY, store="postgresql")
    second = object.__new__(Bench)
    second.__dict__.update(first.__dict__)
    connection: WriterConnection = first.address.open_writer()
    second.connection, second.writer = connection, Writer(connection)
    second.pool = second.do(second._load)
    for ids in (second.pool.ids.events, second.pool.ids.submissions, second.pool.ids.jobs):
        # Servers use no id twice: with the same ids one transaction would fail, and begin again after the other one.
        assert isinstance(ids, SequentialIds)
        ids.last += 1_000_000
    benches = Servers(QueueBench(first), QueueBench(second))
    for bench in benches:
        # Masks may have been posted by way of another server.
        bench.bench.pool.peers.shared = True
    with decision_guard.active():
        yield benches
        connection.close()
        first.end()


@pytest.fixture
def race(servers: Servers) -> Iterator[Race]:
    made = Race(servers.first.bench, servers.second.bench)
    yield made
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
