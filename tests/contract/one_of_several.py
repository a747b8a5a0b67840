"""A pool as one of several servers on one PostgreSQL has it, driven by hand."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from random import Random
from typing import Any, TypeVar

from pilotage.core import policy as policies
from pilotage.core.ids import JobId, QueueId, SubmissionId
from pilotage.core.queues.indexed_queue import HeadsRequest
from pilotage.services.peers import sync
from pilotage.services.pool.database_peers import DatabasePeers
from pilotage.services.pool.index_loading import open_pool
from pilotage.services.pool.state import Pool
from pilotage.store.cluster import changes, servers
from pilotage.store.cluster.id_allocator import Counters
from pilotage.store.cluster.servers import ServerRow
from pilotage.store.postgresql.dsn import DatabaseAddress
from pilotage.store.tables import jobs, submissions
from pilotage.store.writer.transaction import Transaction
from pilotage.store.writer.writer import Writer
from tests.contract.stores import Store

Result = TypeVar("Result")

POLICY = """
[groups.physics]
[users.alice]
groups = ["physics"]
[sites.here]
"""


class One:
    """A server's pool and writer."""

    def __init__(self, store: Store, name: str, *, load: bool = True) -> None:
        self._load_at_start = load
        self.name, self.store = name, store
        self.address = DatabaseAddress.parse(store.place)
        self.connection, self._counting = store.open_writer(), store.open_writer()
        self.writer = Writer(self.connection)
        self.writer.start()
        self.pool: Pool = self.writer.call(self._open)

    def _open(self, tx: Any) -> Pool:
        servers.register(tx.connection, ServerRow(self.name, "host", self.name, "1", 1.0, 1.0, 1))
        peers = DatabasePeers(self.name, position=changes.oldest_open_transaction(tx.connection))
        return open_pool(
            tx, policies.parse(POLICY), version=1, incarnation=1, rng=Random(1), secrets=secrets, home_owner="",
            peers=peers, load=self._load_at_start,
            counters=Counters(self._counting),
        )  # fmt: skip

    def do(self, request: Callable[[Transaction], Result]) -> Result:
        return self.writer.call(request)

    @property
    def peers(self) -> DatabasePeers:
        assert isinstance(self.pool.peers, DatabasePeers)
        return self.pool.peers

    def follow(self) -> None:
        found = changes.read(self.store.readers.connection(), self.peers.position, self.name)
        self.writer.call(lambda tx: sync.apply_changes(self.pool, tx, found))

    def waiting(self, queue: QueueId) -> dict[int, int]:
        entry = self.pool.queues.index.entries.get(queue)
        return {} if entry is None else {w: part.count for w, part in entry.levels.items() if part.count}

    def recount(self) -> int:
        return self.writer.call(lambda tx: sync.recount(self.pool, tx, sync.all_queues(self.pool.queues)))

    def make(
        self, queue: QueueId, count: int, fail: bool = False, before_commit: Callable[[], None] | None = None
    ) -> None:
        """New jobs of UserPriority 1, in a transaction of their own."""

        def request(tx: Any) -> None:
            self.make_in(tx, queue, count)
            if before_commit is not None:
                before_commit()
            if fail:
                raise RuntimeError("taken back")

        self.writer.call(request)

    def make_in(self, tx: Any, queue: QueueId, count: int) -> None:
        first = JobId(self.pool.ids.jobs.run(count))
        row = submissions.by_id(tx.connection, SubmissionId(1))
        assert row is not None
        submissions.insert_jobs(tx.connection, row, first, [None] * count, 1, 0, 1.0)
        self.pool.queues.add_jobs(tx, queue, 1, first, count)

    def end(self) -> None:
        self.writer.stop()
        self.connection.close()
        self._counting.close()

    def kill(self, number: int) -> None:
        """Of the jobs that wait one is killed, if there is any."""

        def request(tx: Any) -> None:
            sql = (
                "SELECT id, queue_id, user_priority FROM jobs WHERE state = 'Waiting' ORDER BY id FOR UPDATE"
            )
            found = tx.connection.execute(sql).fetchall()
            if found:
                job, queue, weight = found[number % len(found)]
                tx.connection.execute("UPDATE jobs SET state = 'Killed' WHERE id = ?", (job,))
                self.pool.queues.touch(tx, queue)
                self.pool.queues.index.remove_job(queue, weight, job)

        self.writer.call(request)

    def give_back(self, number: int) -> None:
        """Of the killed jobs one waits again, if there is any."""

        def request(tx: Any) -> None:
            sql = "SELECT id, queue_id, user_priority FROM jobs WHERE state = 'Killed' ORDER BY id FOR UPDATE"
            found = tx.connection.execute(sql).fetchall()
            if found:
                job, queue, weight = found[number % len(found)]
                tx.connection.execute("UPDATE jobs SET state = 'Waiting' WHERE id = ?", (job,))
                self.pool.queues.touch(tx, queue)
                [[head]] = jobs.queue_heads(tx.connection, [HeadsRequest(queue, weight, job - 1, 1)])
                self.pool.queues.index.return_job(queue, weight, head)

        self.writer.call(request)

    def take(self, queue: QueueId) -> bool:
        """Give out a job of a queue; whether there was one."""

        def request(tx: Any) -> bool:
            self.pool.queues.touch(tx, queue)
            entry = self.pool.queues.index.entries[queue]
            while entry.waiting:
                proposal = self.pool.queues.index._take_job(entry, Random(3))
                if proposal is None:
                    break
                sql = "UPDATE jobs SET state = 'Matched' WHERE id = ? AND state = 'Waiting'"
                if tx.connection.execute(sql, (proposal.job,)).rowcount:
                    return True
                self.pool.queues.index.restore_lost_job(queue, proposal.user_priority, proposal.job)
            return False

        return self.writer.call(request)
