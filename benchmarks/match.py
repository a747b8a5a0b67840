"""Matches per second, durable: a match is a committed `offered` with its event. In process, through the writer.

Pilots of the running pool ask, one job or `--ask` at a time; each has a free node again as soon as it is answered.
The raw limit is what the same store does with the rows of a match alone: one claim by id and one event for a batch.
"""

from __future__ import annotations

import argparse
import json
import resource
import sqlite3
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

from benchmarks.figure import Figure
from pilotage.core import policy as policies
from pilotage.core.ids import PilotId
from pilotage.core.queues.identity import QueueIdentity
from pilotage.services.exchange import Message, exchange_many, token_hash
from pilotage.services.pool import Pool, open_pool
from pilotage.services.sharing import settle_some
from pilotage.store import instance, pilots, submissions
from pilotage.store.sqlite import open_writer
from pilotage.store.upgrade import sqlite_engine, upgrade
from pilotage.store.writer import Item, Transaction, Writer
from pilotage.wire.pilot import ExchangeRequest, ExchangeResponse, Node, Take

GROUPS, OWNERS, SITES, PLATFORMS = 5, 50, 40, ("el8", "el9")
RAW_BATCH = 32


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--jobs", type=int, default=1_000_000, help="waiting jobs")
    parser.add_argument("--queues", type=int, default=5_000)
    parser.add_argument("--rule", choices=("document", "proportional"), default="document")
    parser.add_argument("--clients", type=int, default=256, help="pilots that ask at the same time")
    parser.add_argument("--ask", type=int, default=1, help="jobs asked for in one call")
    parser.add_argument("--seconds", type=float, default=8.0)


def run(asked: argparse.Namespace) -> Figure:
    with tempfile.TemporaryDirectory(prefix="bench-match-") as folder, filled(Path(folder), asked) as site:
        found = site.measured(asked)
        raw = site.raw_limit(asked.seconds / 4)
    ordered = sorted(found.latencies)
    rate = round(found.matched / found.seconds, 1)
    notes = {
        "pool": f"{asked.jobs:,} jobs in {asked.queues:,} queues, {OWNERS} owners, {SITES} sites, rule {asked.rule}",
        "asking": f"{asked.clients} pilots, {asked.ask} at a time; {found.empty} answers without a job",
        "latency": f"p50 {_of(ordered, 0.5):.2f} ms, p99 {_of(ordered, 0.99):.2f} ms",
        "index": f"rebuilt in {site.rebuilt:.2f} s",
        "memory": f"{resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024:.0f} MB at most",
    }
    return Figure(
        "match", rate, "matches/s", {"raw claims": round(raw, 1)}, round(rate / raw, 3), [rate], notes
    )


def _of(ordered: Sequence[float], part: float) -> float:
    return ordered[min(len(ordered) - 1, int(len(ordered) * part))] * 1000 if ordered else 0.0


@dataclass
class Found:
    matched: int = 0
    empty: int = 0
    seconds: float = 0.0
    latencies: list[float] = field(default_factory=list)


@dataclass
class Site:
    """A filled store, its pool, and pilots that may ask."""

    connection: sqlite3.Connection
    writer: Writer
    pool: Pool
    tokens: list[str]
    rebuilt: float
    exchange: Any = None

    def __post_init__(self) -> None:
        self.exchange = self._answer

    def measured(self, asked: argparse.Namespace) -> Found:
        """Let every pilot ask again as soon as it has its answer."""
        found, rng, stop = Found(), Random(3), threading.Event()
        for token in self.tokens:
            self._ask(token, 1, asked.ask, found, _node(rng), stop)
        # Behind the first question of every pilot: all kinds of offer have been met.
        self.writer.call(lambda _: None)
        found.matched, found.empty = 0, 0
        found.latencies.clear()
        begun = time.perf_counter()
        settling = threading.Thread(target=self._settle, args=(stop,))
        settling.start()
        stop.wait(asked.seconds)
        stop.set()
        settling.join()
        # Whatever is under way is answered before this.
        self.writer.call(lambda _: None)
        found.seconds = time.perf_counter() - begun
        return found

    def _settle(self, stop: threading.Event) -> None:
        """As the server's duty does."""
        while not stop.wait(1.0):
            while not self.writer.call(lambda _: settle_some(self.pool)):
                pass

    def _ask(
        self, token: str, number: int, count: int, found: Found, node: Node, stop: threading.Event
    ) -> None:
        request = ExchangeRequest(incarnation=1, take=Take(number, count, node))
        pool, begun = self.pool, time.perf_counter()

        def answered(response: ExchangeResponse | None, error: BaseException | None) -> None:
            if error is not None:
                raise error
            assert response is not None
            found.latencies.append(time.perf_counter() - begun)
            found.matched += len(response.offers)
            found.empty += not response.offers
            # As a pilot does that isolates its payloads: one that does not serves the owner of its first match only.
            pool.pilots[token].only_owner = None
            # As of a pilot whose jobs end.
            del pool.pilots[token].jobs[:-8]
            if not stop.is_set():
                self._ask(token, number + 1, count, found, node, stop)

        self.writer.submit(Item(self.exchange, (token, request)), answered)

    def _answer(self, tx: Transaction, messages: Sequence[Message]) -> Sequence[Any]:
        return exchange_many(self.pool, tx, messages, time.time())

    def raw_limit(self, seconds: float) -> float:
        """Claims per second of a loop that does nothing else, on the same file."""
        rows = self.connection.execute("SELECT id FROM jobs WHERE state = 'Waiting' ORDER BY id LIMIT 400000")
        ids = [row[0] for row in rows]
        Random(4).shuffle(ids)
        claim = (
            "UPDATE jobs SET state = 'Matched', epoch = epoch + 1, pilot_id = 1, started = 1.0 WHERE id = ?"
        )
        event = (
            "INSERT INTO events (at, kind, actor, old, new, detail, jobs)"
            " VALUES (1, 'offered', 'raw', '', '', '', ?)"
        )
        begun, done = time.perf_counter(), 0
        while time.perf_counter() - begun < seconds and done < len(ids):
            batch = ids[done : done + RAW_BATCH]
            self.connection.execute("BEGIN IMMEDIATE")
            self.connection.executemany(claim, [(one,) for one in batch])
            self.connection.execute(event, (json.dumps(batch),))
            self.connection.execute("COMMIT")
            done += len(batch)
        return done / (time.perf_counter() - begun)


def _node(rng: Random) -> Node:
    return Node(
        hostname="n",
        platform=rng.choice(PLATFORMS),
        processors=8,
        memory=rng.choice((8000, 16000, 32000)),
        cpu_left=rng.choice((60000.0, 400000.0)),
    )


@contextmanager
def filled(folder: Path, asked: argparse.Namespace) -> Iterator[Site]:
    path = folder / "match.db"
    engine = sqlite_engine(path)
    upgrade(engine)
    engine.dispose()
    with closing(open_writer(path)) as connection:
        connection.execute("BEGIN")
        tokens = _rows(connection, asked)
        connection.execute("COMMIT")
        connection.execute("ANALYZE")
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        writer = Writer(connection)
        writer.start()
        try:
            begun = time.perf_counter()
            pool = writer.call(lambda tx: _pool(tx, asked.rule))
            yield Site(connection, writer, pool, tokens, time.perf_counter() - begun)
        finally:
            writer.stop()


def _pool(tx: Transaction, rule: str) -> Pool:
    policy = policies.parse(_policy(rule))
    return open_pool(tx, policy, version=1, incarnation=1, rng=Random(5), home_owner="")


def _policy(rule: str) -> str:
    lines = [f'[matching]\nrule = "{rule}"']
    lines += [f"[groups.g{g}]\nshare = {1000 * (g + 1)}" for g in range(GROUPS)]
    lines += [f'[users.o{o}]\ngroups = ["g{o % GROUPS}"]' for o in range(OWNERS)]
    for s in range(SITES):
        lines.append(f'[sites.s{s}]\n[ces.ce{s}]\nsite = "s{s}"\nowners = "any"')
    return "\n".join(lines)


def _rows(connection: sqlite3.Connection, asked: argparse.Namespace) -> list[str]:
    """Queues, their jobs in turn, and pilots that are known; the hashes of the pilots' tokens."""
    rng = Random(1)
    instance.create(connection, "bench", time.time())
    ids = [submissions.insert_queue(connection, one, 0.0) for one in _identities(asked.queues, rng)]
    description = json.dumps({"executable": "/bin/true"})
    connection.executemany(
        "INSERT INTO submissions (id, owner, grp, submitted, description, inputs, names, job_name, job_group,"
        " job_type, queue_id, first_job, count, warnings)"
        " VALUES (?, 'o', 'g', 1, ?, '[]', '[]', '', '', '', ?, 1, 1, '[]')",
        ((place + 1, description, queue) for place, queue in enumerate(ids)),
    )
    connection.executemany(
        "INSERT INTO jobs (id, submission_id, queue_id, state, user_priority, submitted)"
        " VALUES (?, ?, ?, 'Waiting', ?, 1)",
        (
            (job, 1 + job % asked.queues, ids[job % asked.queues], rng.choice((1, 1, 1, 2, 5)))
            for job in range(1, asked.jobs + 1)
        ),
    )
    return [_pilot(connection, number) for number in range(asked.clients)]


def _identities(queues: int, rng: Random) -> Sequence[QueueIdentity]:
    """As a pool of several groups has them: a third bound to some sites, some with platforms or much memory."""
    found = []
    for number in range(queues):
        owner = rng.randrange(OWNERS)
        some = frozenset(f"s{site}" for site in rng.sample(range(SITES), rng.randrange(1, 6)))
        found.append(
            QueueIdentity(
                f"o{owner}",
                f"g{owner % GROUPS}",
                cpu_time=rng.choice((500, 5000, 50000, 300000)),
                memory=rng.choice((0, 2000, 4000, 8000, 16000)),
                processors=rng.choice((1, 1, 1, 2, 8)),
                job_type=f"T{number}",
                sites=some if number % 3 == 0 else frozenset(),
                platforms=frozenset(rng.sample(PLATFORMS, 1)) if number % 5 == 0 else frozenset(),
            )
        )
    return found


def _pilot(connection: sqlite3.Connection, number: int) -> str:
    hashed = token_hash(f"token {number}")
    pilot: PilotId = pilots.insert(
        connection,
        stamp=f"stamp {number}",
        secret_hash="s",
        idx=number,
        site=f"s{number % SITES}",
        ce=f"ce{number % SITES}",
        only_owner=None,
        pilot_type="generic",
        processors=8,
        memory=0,
        now=1.0,
    )
    pilots.update(
        connection,
        pilot,
        token_hash=hashed,
        state="Running",
        started=1.0,
        lease_until=time.time() + 86400 * 7,
    )
    return hashed
