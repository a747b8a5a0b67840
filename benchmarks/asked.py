"""Pilots that ask through the writer in this process, and claims on the same store without a matcher."""

from __future__ import annotations

import gc
import secrets
import threading
import time
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from random import Random
from typing import Any

import msgspec

from benchmarks.filled import Store
from benchmarks.shapes import Shape
from pilotage.core import policy as policies
from pilotage.server.process import gc_tuning
from pilotage.services.pilots.exchange import PilotMessage, exchange_many, token_hash
from pilotage.services.pool.index_loading import open_pool
from pilotage.services.pool.state import Pool
from pilotage.services.shares.corrections import apply_priorities
from pilotage.store.cluster.id_allocator import SequentialIds
from pilotage.store.engine.connection import Connection, WriterConnection
from pilotage.store.tables import instance, jobs
from pilotage.store.tables.events import last_event
from pilotage.store.writer.stats import TransactionTimes
from pilotage.store.writer.transaction import BatchableRequest, Transaction
from pilotage.store.writer.writer import Writer
from pilotage.wire.pilot import ExchangeRequest, ExchangeResponse, Node, Take

RAW_BATCH, RAW_HEADS = 64, 100
WARM = 1.0


@dataclass
class Found:
    matched: int = 0
    empty: int = 0
    seconds: float = 0.0
    cpu: float = 0.0
    """Processor time of the whole process."""
    latencies: list[float] = field(default_factory=list)
    logged: list[int] = field(default_factory=list)
    """Bytes and whole pages in PostgreSQL's log."""


@dataclass
class Site:
    """A filled store, its pool, and pilots that may ask."""

    connection: WriterConnection
    writer: Writer
    pool: Pool
    shape: Shape
    tokens: Sequence[str]
    rebuilt: float
    """Seconds in which the pool was made."""
    exchange: Any = None

    def __post_init__(self) -> None:
        self.exchange = self._answer

    def measured(self, count: int, seconds: float, most: int | None = None) -> Found:
        """Let every pilot ask for `count` jobs again as soon as it has its answer, up to `most` matches.

        Counting begins after half of `most`, or after WARM seconds. By then every offer class is known, and most
        queues have been read.
        """
        run = _Run(self, count, most)
        for token, node in zip(self.tokens, self._nodes(count), strict=True):
            pilot = self.pool.pilots.rows.get(token_hash(token))
            run.ask(token_hash(token), pilot.take_number + 1 if pilot else 1, node)
        # Runs after the first request of every pilot.
        self.writer.call(lambda _: None)
        run.half.wait(WARM)
        self.writer.times = TransactionTimes()
        if run.most is not None:
            run.most -= run.found.matched
        found = run.found = Found()
        before = self.logged()
        begun, cpu = time.perf_counter(), time.process_time()
        settling = threading.Thread(target=self._settle, args=(run.stop,))
        settling.start()
        run.stop.wait(seconds)
        run.stop.set()
        settling.join()
        # Requests under way are answered before this call.
        self.writer.call(lambda _: None)
        found.seconds, found.cpu = time.perf_counter() - begun, time.process_time() - cpu
        found.logged = [now - then for then, now in zip(before, self.logged(), strict=True)]
        return found

    def logged(self) -> list[int]:
        """Bytes and full pages of PostgreSQL's WAL, up to a second old. Empty for SQLite."""
        if self.connection.dialect == "sqlite":
            return []
        sql = "SELECT wal_bytes::bigint, wal_fpi FROM pg_stat_wal"
        return list(self.writer.call(lambda tx: tx.connection.execute(sql).fetchone()))

    def _nodes(self, ask: int) -> list[Node]:
        rng = Random(3)
        return [self.shape.node(rng, ask) for _ in self.tokens]

    def _settle(self, stop: threading.Event) -> None:
        """As the server's duty does."""
        while not stop.wait(1.0):
            while not self.writer.call(lambda _: apply_priorities(self.pool.queues)):
                pass

    def _answer(self, tx: Transaction, messages: Sequence[PilotMessage]) -> Sequence[Any]:
        return exchange_many(self.pool, tx, messages, time.time())

    def raw_limit(self, seconds: float) -> float:
        """Claims per second of a loop that does nothing else, on the same store."""
        connection, rng = self.connection, Random(4)
        waiting = _first_of_queues(connection, rng)
        events, done = SequentialIds(last_event(connection)), 0
        begun = time.perf_counter()
        while time.perf_counter() - begun < seconds and done + RAW_BATCH <= len(waiting):
            event = events.next()
            batch = waiting[done : done + RAW_BATCH]
            connection.begin()
            jobs.save_offered(
                connection,
                [jobs.OfferedJobRow(1, 1, 1.0, event, job, last) for job, last in batch],  # type: ignore[arg-type]
            )
            connection.execute(
                "INSERT INTO events (id, at, kind, actor, old, new, detail, jobs)"
                " VALUES (?, 1, 'offered', 'raw', 'Waiting', 'Matched', '', ?)",
                (event, msgspec.json.encode([(job, 1, last, 1) for job, last in batch]).decode()),
            )
            connection.commit()
            done += len(batch)
        return done / (time.perf_counter() - begun)


class _Run:
    """Pilots that ask on and on."""

    def __init__(self, site: Site, count: int, most: int | None) -> None:
        self.site, self.count, self.most = site, count, most
        self.found, self.half, self.stop = Found(), threading.Event(), threading.Event()

    def ask(self, token: str, number: int, node: Node) -> None:
        request = ExchangeRequest(incarnation=1, take=Take(number, self.count, node))
        begun, pool = time.perf_counter(), self.site.pool

        def answered(response: ExchangeResponse | None, error: BaseException | None) -> None:
            if error is not None:
                self.stop.set()
                raise error
            assert response is not None
            found = self.found
            found.latencies.append(time.perf_counter() - begun)
            found.matched += len(response.offers)
            found.empty += not response.offers
            if self.most is not None and found.matched >= self.most / 2:
                self.half.set()
                if found.matched >= self.most:
                    self.stop.set()
            pilot = pool.pilots.rows[token]
            if self.count == 1 or not response.offers:
                # As a pilot does that isolates its payloads: one that does not serves the owner of its first match
                # only. And in place of one whose owner has nothing for it comes another.
                pilot.only_owner = None
            # As of a pilot whose jobs end.
            del pilot.jobs[:-8]
            if not self.stop.is_set():
                self.ask(token, number + 1, node)

        self.site.writer.submit(BatchableRequest(self.site.exchange, (token, request), self.count), answered)


def _first_of_queues(connection: Connection, rng: Random) -> list[tuple[int, int]]:
    """(job, its last event): of queues drawn one after another, the first that waits and has not been drawn."""
    queues = [row[0] for row in connection.execute("SELECT id FROM queues")]
    sql = (
        "SELECT id, last_event FROM jobs WHERE state = 'Waiting' AND queue_id = ? ORDER BY user_priority DESC, id"
        " LIMIT ?"
    )
    heads = {queue: connection.execute(sql, (queue, RAW_HEADS)).fetchall()[::-1] for queue in queues[:20_000]}
    drawn = [queue for queue, rows in heads.items() for _ in rows]
    rng.shuffle(drawn)
    return [heads[queue].pop() for queue in drawn]


@contextmanager
def opened(store: Store, shape: Shape, tokens: Sequence[str], *, sync: bool = True) -> Generator[Site]:
    """The pool of a filled store, behind a writer in its own thread. `sync`: commits are flushed to the disk."""
    connection = store.open_writer()
    if not sync:
        off = (
            "PRAGMA synchronous = OFF" if connection.dialect == "sqlite" else "SET synchronous_commit TO off"
        )
        connection.execute(off)
    writer = Writer(connection)
    writer.start()
    try:
        begun = time.perf_counter()
        pool = writer.call(_pool)
        gc_tuning.shorten_switch_interval()
        gc_tuning.freeze_gc()
        yield Site(connection, writer, pool, shape, tokens, time.perf_counter() - begun)
    finally:
        writer.stop()
        connection.close()
        gc.unfreeze()


def _pool(tx: Transaction) -> Pool:
    kept = instance.current_policy(tx.connection)
    assert kept is not None
    return open_pool(
        tx,
        policies.parse(kept.text),
        version=kept.version,
        incarnation=1,
        rng=Random(5),
        secrets=secrets,
        home_owner="",
    )
