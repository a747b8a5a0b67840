"""A server that begins beside others counts what waits while it and they go on: each job is counted once."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any

import pytest

from pilotage.core.ids import QueueId
from pilotage.server.duties import startup
from pilotage.server.duties.startup import load_index
from pilotage.services.pool import index_loading
from pilotage.services.pool.index_loading import apply_counts, count_waiting
from pilotage.store.tables import counts as count_rows
from pilotage.store.tables import instance
from tests.contract.one_of_several import POLICY, One
from tests.contract.stores import Gate, Store, fill, postgresql_store
from tests.deadlines import PATIENCE

pytestmark = pytest.mark.slow


class Setting:
    """A store with ten jobs; b, a server that has counted, and a, one that begins."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.connection = store.open_writer()
        self.queue: QueueId = fill(self.connection)
        instance.save_policy(self.connection, text=POLICY, now=1.0, by="alice", reason="")
        self.b = One(store, "b")
        self.a = One(store, "a", load=False)

    def check(self) -> None:
        """Both know what waits, once they have followed each other."""
        expected = count_rows.waiting_counts(self.connection)
        for one in (self.a, self.b):
            one.follow()
            found = {
                queue: waiting for queue in one.pool.queues.index.entries if (waiting := one.waiting(queue))
            }
            assert found == expected
            assert one.recount() == 0

    def end(self) -> None:
        self.a.end()
        self.b.end()
        self.connection.close()


@pytest.fixture
def setting(tmp_path: Path) -> Iterator[Setting]:
    store = postgresql_store(tmp_path, migrated=True)
    made = Setting(store)
    yield made
    made.end()
    store.readers.close()
    store.engine.dispose()
    store.drop()


class Held:
    """Jobs made by a server in a transaction that stays open until it is told to end."""

    def __init__(self, one: One, queue: QueueId, count: int) -> None:
        self.open, self.made = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=lambda: one.make(queue, count, before_commit=self._wait))
        self._thread.start()
        assert self.made.wait(PATIENCE)

    def _wait(self) -> None:
        self.made.set()
        assert self.open.wait(PATIENCE)

    def commit(self) -> None:
        self.open.set()
        self._thread.join(PATIENCE)


def anything(setting: Setting, rng: Random, *servers: One) -> None:
    """One of them does something."""
    one = rng.choice(servers)
    match rng.randrange(5):
        case 0:
            one.make(setting.queue, rng.randrange(1, 4))
        case 1:
            with pytest.raises(RuntimeError, match="taken back"):
                one.make(setting.queue, 50, fail=True)
        case 2:
            one.kill(rng.randrange(100))
        case 3:
            one.give_back(rng.randrange(100))
        case _:
            given = one.take(setting.queue)
            assert not (given and one.pool.queues.loading)


@pytest.mark.parametrize("seed", range(12))
def test_each_job_is_counted_once_though_two_servers_work_during_the_count(
    setting: Setting, seed: int
) -> None:
    a, b, rng = setting.a, setting.b, Random(seed)
    for _ in range(rng.randrange(6)):
        anything(setting, rng, a, b)
    # Not seen by the count, and from before it; its end is before or after the count is taken up.
    held = Held(b, setting.queue, 5) if seed % 3 else None
    seen, counts = count_waiting(setting.store.readers.connection())
    for _ in range(rng.randrange(12)):
        anything(setting, rng, a, *(() if held else (b,)))
    if held and seed % 3 == 1:
        held.commit()
        anything(setting, rng, b)
    assert a.pool.queues.loading is not None
    a.writer.call(lambda tx: apply_counts(a.pool, tx, seen, counts))
    assert a.pool.queues.loading is None
    if held:
        held.commit()
    setting.check()
    for _ in range(6):
        anything(setting, rng, a, b)
    setting.check()
    assert sum(a.waiting(setting.queue).values()) > 0
    assert a.take(setting.queue)


def test_a_server_answers_while_the_count_is_held(setting: Setting, monkeypatch: pytest.MonkeyPatch) -> None:
    a, b, queue = setting.a, setting.b, setting.queue
    reached, opened = threading.Event(), threading.Event()

    def held(connection: Any) -> Any:
        found = count_waiting(connection)
        reached.set()
        assert opened.wait(PATIENCE)
        return found

    monkeypatch.setattr(startup, "count_waiting", held)

    async def work() -> None:
        context: Any = SimpleNamespace(
            pool=a.pool,
            writer=a.writer,
            readers=setting.store.readers,
            stop=asyncio.Event(),
            clock=lambda: 0.0,
        )
        counting = asyncio.create_task(load_index(context))
        await asyncio.to_thread(reached.wait, PATIENCE)
        # What pilots and people ask for is answered, but no job is given.
        assert await a.writer.acall(lambda _: "answered") == "answered"
        assert not await asyncio.to_thread(a.take, queue)
        await asyncio.to_thread(a.make, queue, 3)
        await asyncio.to_thread(a.kill, 0)
        await asyncio.to_thread(b.make, queue, 4)
        assert await asyncio.to_thread(b.take, queue)
        assert not counting.done()
        opened.set()
        await counting

    asyncio.run(asyncio.wait_for(work(), PATIENCE))
    assert a.pool.queues.loading is None
    assert sum(a.waiting(queue).values()) == 10 + 3 - 1 + 4 - 1
    setting.check()


def test_a_count_is_taken_up_once_though_its_group_fails(setting: Setting) -> None:
    """Beside requests of the same transaction, before it and behind it."""
    a, queue = setting.a, setting.queue
    a.make(queue, 2)
    seen, counts = count_waiting(setting.store.readers.connection())
    a.make(queue, 3)

    def fails(_: Any) -> None:
        raise ZeroDivisionError

    def together(*requests: Any) -> list[Any]:
        gate, answers = Gate(a.writer), []
        done = threading.Event()

        def reply(result: Any, error: BaseException | None) -> None:
            answers.append(error)
            if len(answers) == len(requests):
                done.set()

        for request in requests:
            a.writer.submit(request, reply)
        gate.opened.set()
        assert done.wait(PATIENCE)
        return answers

    def make(tx: Any) -> None:
        a.make_in(tx, queue, 7)

    answers = together(make, lambda tx: apply_counts(a.pool, tx, seen, counts), make, fails)
    assert [type(answer) for answer in answers] == [type(None)] * 3 + [ZeroDivisionError]
    assert a.pool.queues.loading is None
    setting.check()
    assert sum(a.waiting(queue).values()) == 10 + 2 + 3 + 7 + 7


def test_requests_of_one_transaction_with_the_count_are_in_it(setting: Setting) -> None:
    a, queue = setting.a, setting.queue
    seen, counts = count_waiting(setting.store.readers.connection())

    def request(tx: Any) -> None:
        a.make_in(tx, queue, 7)
        apply_counts(a.pool, tx, seen, counts)
        a.make_in(tx, queue, 2)

    a.writer.call(request)
    assert sum(a.waiting(queue).values()) == 19
    setting.check()


def test_a_reload_counts_jobs_of_its_own_transaction_once(setting: Setting) -> None:
    a, queue = setting.a, setting.queue

    def request(tx: Any) -> None:
        a.make_in(tx, queue, 7)
        index_loading.reload_all(a.pool, tx)

    a.writer.call(request)
    assert sum(a.waiting(queue).values()) == 17
    setting.check()
