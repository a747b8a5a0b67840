from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from pilotage.store.engine.connection import WriterConnection
from pilotage.store.writer.writer import Writer
from tests.unit.services.bench import Bench
from tests.unit.services.workqueue.queue_bench import POLICY, QueueBench
from tests.unit.services.workqueue.race import Race, Servers


@pytest.fixture
def servers(tmp_path: Path) -> Iterator[Servers]:
    first = Bench(tmp_path, POLICY, store="postgresql")
    second = object.__new__(Bench)
    second.__dict__.update(first.__dict__)
    connection: WriterConnection = first.address.open_writer()
    second.connection, second.writer = connection, Writer(connection)
    second.pool = second.do(second._load)
    benches = Servers(QueueBench(first), QueueBench(second))
    for bench in benches:
        # Masks may have been posted by way of another server.
        bench.bench.pool.peers.shared = True
    yield benches
    connection.close()
    first.end()


@pytest.fixture
def race(servers: Servers) -> Iterator[Race]:
    made = Race(servers)
    yield made
    made.end()
