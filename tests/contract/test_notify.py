"""Hints by NOTIFY: heard after the commit, heard again after a lost session, and never needed."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from pilotage.server.context import Context
from pilotage.server.disk_space import DiskSpace
from pilotage.server.duties import peers as peers_duty
from pilotage.server.duties.loop import every, until_stopped
from pilotage.server.duties.peers import PeersDuty
from pilotage.server.failing_rows import FailingRows
from pilotage.server.signals import Stop
from pilotage.services.peers import sync
from pilotage.services.pool.database_peers import NOTIFICATION_PERIOD, DatabasePeers
from pilotage.store.cluster import changes, servers
from pilotage.store.cluster.servers import ServerRow
from pilotage.store.engine.connection import ConnectionLost
from pilotage.store.postgresql.dsn import DatabaseAddress
from pilotage.store.postgresql.notify import PostgresqlNotifications
from pilotage.store.writer.change_watch import ChangeWatch
from tests.contract.stores import Store, postgresql_store
from tests.deadlines import PATIENCE

pytestmark = pytest.mark.slow

LISTENING = "SELECT pid FROM pg_stat_activity WHERE query LIKE 'LISTEN%' AND datname = current_database()"


@pytest.fixture
def postgresql(tmp_path: Path) -> Iterator[Store]:
    store = postgresql_store(tmp_path, migrated=True)
    yield store
    store.readers.close()
    store.engine.dispose()
    store.drop()


@pytest.fixture
def writing(postgresql: Store) -> Iterator[Any]:
    connection = postgresql.open_writer()
    yield connection
    connection.close()


@asynccontextmanager
async def listening(hints: PostgresqlNotifications, heard: Callable[[str], object]) -> AsyncIterator[None]:
    task = asyncio.create_task(hints.listen(heard))
    try:
        yield
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


async def sessions(connection: Any, count: int) -> list[int]:
    """Wait until so many sessions listen."""
    while len(found := connection.execute(LISTENING).fetchall()) != count:
        await asyncio.sleep(0)
    return [row[0] for row in found]


def in_time(work: Any) -> None:
    asyncio.run(asyncio.wait_for(work, PATIENCE))


def test_a_hint_is_heard_after_the_commit_once_for_a_transaction(postgresql: Store, writing: Any) -> None:
    async def work() -> None:
        heard: asyncio.Queue[str] = asyncio.Queue()
        async with listening(
            PostgresqlNotifications(DatabaseAddress.parse(postgresql.place).listening), heard.put_nowait
        ):
            assert await heard.get() == ""
            writing.begin()
            changes.write(writing, "taken back", "{}", 1.0, hint=True)
            writing.rollback()
            changes.write(writing, "without", "{}", 1.0)
            writing.begin()
            changes.write(writing, "a", "{}", 1.0, hint=True)
            changes.write(writing, "a", "{}", 1.0, hint=True)
            assert heard.empty()
            writing.commit()
            changes.write(writing, "b", "{}", 1.0, hint=True)
            assert [await heard.get(), await heard.get()] == ["a", "b"]
        await sessions(writing, 0)

    in_time(work())
    assert [change.server for change in changes.read_all_since(writing, 0, "")] == ["without", "a", "a", "b"]


def test_a_listener_that_lost_its_session_listens_again_and_looks(postgresql: Store, writing: Any) -> None:
    async def work() -> None:
        heard: asyncio.Queue[str] = asyncio.Queue()
        address, refused = DatabaseAddress.parse(postgresql.place), [0]

        async def connect() -> Any:
            if refused[0]:
                refused[0] -= 1
                raise ConnectionLost("not now")
            return await address.listening()

        async with listening(PostgresqlNotifications(connect, pause=0.0), heard.put_nowait):
            assert await heard.get() == ""
            refused[0] = 3
            [listener] = await sessions(writing, 1)
            writing.execute("SELECT pg_terminate_backend(?::integer)", (listener,))
            # Whatever was said meanwhile was not heard: "" has the server look.
            assert await heard.get() == ""
            changes.write(writing, "a", "{}", 1.0, hint=True)
            assert await heard.get() == "a"
            assert refused == [0]
        await sessions(writing, 0)

    in_time(work())


def test_a_server_does_not_hint_at_every_transaction() -> None:
    now = [100.0]
    peers = DatabasePeers("a", monotonic=lambda: now[0])
    given = []
    for _ in range(1000):
        given.append(peers.should_notify())
        now[0] += NOTIFICATION_PERIOD / 10
    assert given[0]
    assert 90 <= sum(given) <= 100
    assert not DatabasePeers("a").should_notify()


class Follower:
    """The duty of a server "me" that follows, with as little of a server as that needs."""

    def __init__(self, store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
        self.looks: asyncio.Queue[int] = asyncio.Queue()
        connection = store.open_writer()
        servers.register(connection, ServerRow("me", "host", "url", "1", 1.0, 1.0, 1))
        self.peers = DatabasePeers("me", position=changes.oldest_open_transaction(connection))
        connection.close()
        self.context: Any = SimpleNamespace(
            pool=SimpleNamespace(server=SimpleNamespace(policy_version=1)),
            peers=self.peers,
            readers=store.readers,
            writer=SimpleNamespace(in_loop=False, changes=ChangeWatch(None)),
            apply_of_peers=self._apply_of_peers,
            stop=Stop(),
            monotonic=time.monotonic,
            disk=SimpleNamespace(space=DiskSpace({}, time.monotonic)),
            duties=SimpleNamespace(failing=FailingRows(lambda: 0.0)),
        )
        monkeypatch.setattr(sync, "apply_changes", self._follow)
        self.duty = PeersDuty(cast(Context, self.context), self.peers)

    async def _apply_of_peers(self, apply: Any) -> None:
        apply(None)

    def _follow(self, pool: Any, tx: Any, found: changes.ChangeBatch) -> None:
        self.peers.position, self.peers.rules = found.position, found.rules
        if found.changes:
            self.looks.put_nowait(len(found.changes))

    @asynccontextmanager
    async def at_work(self) -> AsyncIterator[None]:
        task = asyncio.create_task(every(self.context, self.duty, self.duty.wake))
        try:
            yield
        finally:
            self.context.stop.set()
            await task


def test_a_hint_has_a_server_look_though_its_period_is_long(
    postgresql: Store, writing: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(peers_duty, "POLL_PERIOD", 1e6)

    async def work() -> None:
        follower = Follower(postgresql, monkeypatch)
        hints = PostgresqlNotifications(DatabaseAddress.parse(postgresql.place).listening)
        listener = asyncio.create_task(
            until_stopped(follower.context, hints.listen(follower.duty.on_notification))
        )
        async with follower.at_work():
            await sessions(writing, 1)
            for _ in range(3):
                changes.write(writing, "other", "{}", 1.0, hint=True)
                assert await follower.looks.get() == 1
        await listener
        await sessions(writing, 0)

    in_time(work())


def test_a_lost_hint_costs_one_period(
    postgresql: Store, writing: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(peers_duty, "POLL_PERIOD", 0.01)

    async def work() -> None:
        follower = Follower(postgresql, monkeypatch)
        async with follower.at_work():
            changes.write(writing, "other", "{}", 1.0)
            assert await follower.looks.get() == 1

    in_time(work())


def test_a_server_ignores_its_own_hints(postgresql: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    async def work() -> None:
        follower = Follower(postgresql, monkeypatch)
        follower.duty.on_notification("me")
        assert not follower.duty.wake.is_set()
        for name in ("", "other"):
            follower.duty.wake.clear()
            follower.duty.on_notification(name)
            assert follower.duty.wake.is_set()

    in_time(work())


def test_a_reader_learns_that_more_changes_follow(postgresql: Store, writing: Any) -> None:
    servers.register(writing, ServerRow("me", "host", "url", "1", 1.0, 1.0, 1))
    begin = changes.oldest_open_transaction(writing)
    early = postgresql.open_writer()
    early.begin()
    changes.write(early, "early", "{}", 1.0)
    early.execute("SELECT 1")  # until then it may wait
    changes.write(writing, "late", "{}", 1.0)
    found = changes.read(writing, begin, "me")
    assert (found.changes, found.more) == ((), True)
    assert not changes.read(writing, begin, "late").more
    early.commit()
    found = changes.read(writing, begin, "me")
    assert ([change.server for change in found.changes], found.more) == (["early", "late"], False)
    early.close()
