"""The duty for offers that nobody confirms, while pilots speak to another server."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from pilotage.core.ids import PilotId
from pilotage.services.pilots import leases
from tests.deadlines import PATIENCE
from tests.instance import until
from tests.postgres import server
from tests.unit.services.bench import OFFER_TIMEOUT, Bench

pytestmark = pytest.mark.slow
LOCK_WAITS = b"SELECT 1 FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()"


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    made = Bench(tmp_path, store="postgresql")
    yield made
    made.end()


def test_offers_that_nobody_confirms_are_locked_in_the_order_of_jobs(bench: Bench) -> None:
    """Messages at other servers lock jobs in this order. Two servers in two orders would be in a deadlock."""
    bench.submit(2)
    first, second = bench.pilot(), bench.pilot()
    offered = {first.take()[0].job: first, second.take()[0].job: second}
    low, high = sorted(offered)
    later = bench.now + OFFER_TIMEOUT + 1
    of = [PilotId(offered[job].id) for job in (high, low)]
    duty = threading.Thread(
        target=lambda: bench.do(lambda tx: leases.lapse_offers(bench.pool, tx, later, of))
    )
    with psycopg.connect(server().url(bench.database)) as other, psycopg.connect(
        server().url(bench.database), autocommit=True
    ) as watcher:  # fmt: skip
        other.execute("SELECT 1 FROM jobs WHERE id = %s FOR UPDATE", (low,))
        duty.start()
        until(lambda: watcher.execute(LOCK_WAITS).fetchone(), what="the wait for the first job")
        # As a message would that reports both jobs.
        other.execute("SELECT 1 FROM jobs WHERE id = %s FOR UPDATE NOWAIT", (high,))
    duty.join(PATIENCE)
    assert [bench.state(job) for job in (low, high)] == ["Waiting", "Waiting"]
