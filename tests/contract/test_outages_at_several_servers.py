"""An outage moves the leases once, whichever server tells it, and a start moves them by the time without a server."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from pilotage.core.ids import PilotId
from pilotage.services.peers.membership import evict_silent, join
from pilotage.services.pilots import leases
from pilotage.store.cluster import servers
from pilotage.store.cluster.servers import ServerRow
from pilotage.store.tables import instance, pilots
from tests.contract.one_of_several import POLICY, One
from tests.contract.stores import Store, postgresql_store
from tests.pilot_intent import pilot_intent

pytestmark = pytest.mark.slow
CE = '[ces.ce]\nsite = "here"\nlease = 300.0\nheartbeat = 10.0\n'


class Pool:
    """Servers on one database, with a clock that tests set. Each server has a pilot of its own, and one has none."""

    def __init__(self, store: Store) -> None:
        self.store, self.now = store, 1000.0
        self._connection = store.open_writer()
        instance.create(self._connection, "i", self.now)
        instance.save_policy(self._connection, text=POLICY + CE, now=1.0, by="alice", reason="")
        self.a, self.b = self.open("a"), self.open("b")
        for number, server in enumerate(("a", "b", ""), 1):
            pilots.insert(self._connection, pilot_intent(f"s{number}"))
            row = {"server": server, "state": "Running", "lease_until": self.now + 300.0}
            pilots.update(self._connection, PilotId(number), **row)

    def open(self, name: str) -> One:
        one = One(self.store, name)
        one.connection.clock = lambda: self.now
        one.writer.call(lambda tx: tx.set(one.pool.server, "alive_at", self.now))
        one.writer.call(lambda tx: servers.heartbeat(tx.connection, name, self.now, 1))
        return one

    def beat(self, one: One, *, begins: bool = False, paused_since: float | None = None) -> None:
        one.writer.call(
            lambda tx: leases.heartbeat(one.pool, tx, self.now, begins=begins, paused_since=paused_since)
        )

    def leases(self) -> list[float]:
        """What is left of each pilot's lease."""
        rows = [pilots.by_id(self._connection, PilotId(number)) for number in (1, 2, 3)]
        return [row.lease_until - self.now for row in rows if row is not None and row.lease_until]

    def restart(self, name: str) -> None:
        """A server at the address of this one begins after it was killed."""
        row = ServerRow(f"{name}{self.now}", "host", name, "1", self.now, self.now, 1)
        self.b.writer.call(lambda tx: join(tx, row, in_common=("", ""), monotonic=lambda: 0.0))
        tx_pool = self.b.pool
        tx_pool.peers.server = row.name
        self.b.writer.call(lambda tx: tx.set(tx_pool.server, "alive_at", float("-inf")))
        self.beat(self.b, begins=True)

    def close(self) -> None:
        for one in (self.a, self.b):
            one.end()
        self._connection.close()


@pytest.fixture
def pool(tmp_path: Path) -> Iterator[Pool]:
    store = postgresql_store(tmp_path, migrated=True)
    made = Pool(store)
    yield made
    made.close()
    store.readers.close()
    store.engine.dispose()
    store.drop()


def test_one_outage_is_credited_once(pool: Pool) -> None:
    pool.beat(pool.a)
    pool.now += 3.0
    pool.beat(pool.b)
    begun = pool.now + 1.0
    pool.now += 51.0
    pool.beat(pool.a, paused_since=begun)
    pool.now += 0.5
    pool.beat(pool.b, paused_since=begun)
    # 3 s before the outage and half a second after it have gone.
    assert pool.leases() == [296.5, 296.5, 296.5]
    assert pool.b.pool.server.alive_at == pool.now


def test_memory_follows_an_outage_that_another_server_has_credited(pool: Pool) -> None:
    pilot = PilotId(2)
    pool.b.writer.call(lambda tx: tx.put(pool.b.pool.pilots.last_seen, pilot, pool.now))
    begun = pool.now
    pool.now += 50.0
    pool.beat(pool.a, paused_since=begun)
    pool.beat(pool.b, paused_since=begun)
    assert pool.b.pool.pilots.last_seen[pilot] == pool.now
    pool.beat(pool.b)
    assert pool.b.pool.pilots.last_seen[pilot] == pool.now


def test_a_pause_of_one_server_moves_the_leases_of_its_pilots(pool: Pool) -> None:
    begun = pool.now
    for _ in range(8):
        pool.now += 5.0
        pool.beat(pool.a)
    pool.beat(pool.b, paused_since=begun)
    assert pool.leases() == [260.0, 300.0, 260.0]


def test_nobody_is_silent_in_an_outage(pool: Pool) -> None:
    begun = pool.now
    pool.now += 50.0
    # The duty may run before the heartbeat.
    assert pool.a.writer.call(lambda tx: evict_silent(pool.a.pool, tx)) == []
    pool.beat(pool.a, paused_since=begun)
    assert pool.a.writer.call(lambda tx: evict_silent(pool.a.pool, tx)) == []
    for _ in range(7):
        pool.now += 5.0
        pool.beat(pool.a)
    assert pool.a.writer.call(lambda tx: evict_silent(pool.a.pool, tx)) == ["b"]
    assert pool.leases() == [265.0, 300.0, 265.0]


def test_a_start_beside_another_server_moves_no_lease(pool: Pool) -> None:
    for _ in range(100):
        pool.now += 4.0
        pool.beat(pool.a)
        pool.restart("b")
    # The pilot of b was credited the time until its server had gone for good.
    assert pool.leases()[0] == -100.0
    assert pool.leases()[2] == -100.0
    assert pool.leases()[1] <= -96.0


def test_a_server_in_a_crash_loop_keeps_no_dead_pilot_alive(pool: Pool) -> None:
    """Each life has 6 s, and 10 s pass without any server."""
    pool.a.writer.call(lambda tx: servers.evict(tx.connection, "a"))
    begun = pool.now
    for life in range(1, 51):
        pool.now += 10.0
        pool.restart("b")
        for _ in range(6):
            pool.now += 1.0
            pool.beat(pool.b)
        credited = [left - 300.0 + pool.now - begun for left in pool.leases()]
        assert credited == [life * 10.0] * 3, life
    assert pool.leases() == [0.0] * 3
