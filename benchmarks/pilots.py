"""The server's work for many running pilots that does not depend on their messages: silence, leases, enrolment.

Everything runs in the writer of a SQLite file, as in the event loop of a server.
"""

from __future__ import annotations

import argparse
import secrets
import statistics
import tempfile
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from random import Random
from typing import Any, TypeVar

from benchmarks.figure import Figure
from benchmarks.filled import store_at
from pilotage.core import policy as policies
from pilotage.core.ids import PilotId
from pilotage.services.pilots import leases
from pilotage.services.pilots.enrolment import enrol, secret_hash
from pilotage.services.pool.index_loading import open_pool
from pilotage.services.pool.state import Pool
from pilotage.store.engine.connection import WriterConnection
from pilotage.store.tables import instance
from pilotage.store.writer.transaction import Transaction
from pilotage.store.writer.writer import Writer
from pilotage.wire.pilot import EnrolRequest

SUMMARY = "ms of one second's look for silent pilots among 100,000; leases that end at once; enrolment"

CES = 20
HEARTBEAT = 60.0
Result = TypeVar("Result")


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--pilots", type=int, default=100_000, help="running pilots, and as many that wait")
    parser.add_argument("--cut", type=int, default=1_000, help="pilots whose leases end at once")
    parser.add_argument("--seconds", type=int, default=600, help="cycles that are measured")


def run(asked: argparse.Namespace) -> Figure:
    with (
        tempfile.TemporaryDirectory(prefix="bench-pilots-") as name,
        store_at(Path(name), "sqlite") as store,
        closing(store.open_writer()) as connection,
    ):
        return _measure(_Server(connection, asked.pilots), asked)


class _Server:
    """A pool with running and waiting pilots, at an instant that moves when told."""

    def __init__(self, connection: WriterConnection, count: int) -> None:
        self.connection, self.count, self.now = connection, count, 1_000_000.0
        self.writer = Writer(connection)
        self.pool: Pool = self.do(self._open)

    def do(self, request: Callable[[Transaction], Result]) -> Result:
        self.connection.begin()
        result = request(Transaction(self.connection))
        self.connection.commit()
        return result

    def timed(self, request: Callable[[Transaction], Any]) -> float:
        """Milliseconds of processor time of one request without its commit."""
        self.connection.begin()
        begun = time.thread_time()
        request(Transaction(self.connection))
        spent = time.thread_time() - begun
        self.connection.commit()
        return spent * 1000

    def _open(self, tx: Transaction) -> Pool:
        text = "[groups.home]\n[users.ada]\ngroups = ['home']\n[sites.here]\n" + "".join(
            f"[ces.ce{number}]\nsite = 'here'\nheartbeat = {HEARTBEAT}\nlease = 3600\n"
            for number in range(CES)
        )
        instance.create(tx.connection, "bench", self.now)
        instance.save_policy(tx.connection, text=text, now=self.now, by="bench", reason="benchmark")
        columns = (
            "id, stamp, secret_hash, idx, nonce, token_hash, state, site, ce, pilot_type, processors, memory,"
            " submitted, started, lease_until"
        )
        sql = f"INSERT INTO pilots ({columns}) VALUES ({', '.join('?' * 15)})"
        rng, now = Random(1), self.now
        for number in range(1, self.count + 1):
            lease = now + 1800 + 1800 * rng.random()
            values = (f"s{number}", secret_hash(f"s{number}"), 0, "n", f"t{number}", "Running", "here")
            tx.connection.execute(
                sql, (number, *values, f"ce{number % CES}", "generic", 1, 0, now, now, lease)
            )
            late = number + self.count
            values = (f"s{late}", secret_hash(f"s{late}"), 0, None, None, "Waiting", "here")  # type: ignore[assignment]
            tx.connection.execute(sql, (late, *values, f"ce{number % CES}", "generic", 1, 0, now, None, None))
        rng = Random(1)
        return open_pool(
            tx, policies.parse(text), version=1, incarnation=1, rng=rng, secrets=secrets, home_owner="ada"
        )


def _measure(server: _Server, asked: argparse.Namespace) -> Figure:
    pool, rng = server.pool, Random(2)
    load = getattr(leases, "load_watch", None)
    loads = []
    if load is not None:
        done = False
        while not done:
            loads.append(server.timed(lambda tx: loads.append(0.0) if load(pool, tx, server.now) else None))
            done = pool.pilots.watch.loading is None
    looks, heard = [], [PilotId(number) for number in range(1, server.count + 1)]
    share = max(1, int(server.count / HEARTBEAT))
    for second in range(asked.seconds):
        server.now += 1.0
        # Each second the next pilots send their heartbeat, spread over the heartbeat's time.
        first = second * share % server.count
        pool.pilots.last_seen.update(dict.fromkeys(heard[first : first + share], server.now))
        looks.append(server.timed(lambda tx: leases.silent(pool, tx, server.now)))
    over = [server.timed(lambda tx: leases.over(pool.peers, tx, server.now)) for _ in range(20)]
    late = rng.sample(range(server.count + 1, 2 * server.count + 1), 50)
    enrolments = [server.timed(lambda tx, n=n: _enrol(pool, tx, n, server.now)) for n in late]
    cut = [PilotId(number) for number in range(1, asked.cut + 1)]
    server.do(
        lambda tx: tx.connection.execute(
            "UPDATE pilots SET lease_until = ? WHERE id <= ?", (server.now - 1, asked.cut)
        )
    )
    slices = _expire(server, cut)
    median = statistics.median(looks)
    aim = 5.0
    notes = {
        "look for silent pilots": f"median {median:.2f} ms, longest {max(looks):.2f} ms of {len(looks)} cycles",
        "watch loaded": f"{len(loads)} transactions, longest {max(loads, default=0):.1f} ms",
        "leases that are over, none": f"{statistics.median(over):.2f} ms",
        "enrolment": f"median {statistics.median(enrolments):.2f} ms among {server.count:,} waiting pilots",
        f"{asked.cut:,} leases over at once": f"{len(slices)} transactions, longest {max(slices):.1f} ms",
        "pool": f"{server.count:,} running and {server.count:,} waiting pilots at {CES} CEs, SQLite",
    }
    return Figure(
        "pilots", round(max(looks), 2), "ms", {"aim": aim}, round(max(looks) / aim, 3), looks[:10], notes
    )


def _enrol(pool: Pool, tx: Transaction, number: int, now: float) -> object:
    return enrol(pool, tx, EnrolRequest(secret=f"s{number}", index=0, nonce="n", hostname="n1"), now)


def _expire(server: _Server, cut: list[PilotId]) -> list[float]:
    """Take the leases back as the duty does; milliseconds of each transaction."""
    try:
        from pilotage.core.slice_pace import SlicePace
        from pilotage.server.duties.row_by_row import SLICE_AIM
    except ImportError:
        return [
            server.timed(lambda tx: leases.expire(server.pool, tx, server.now))
            for _ in range(len(cut) // leases.MOST)
        ]
    pace, spent = SlicePace(SLICE_AIM, time.perf_counter), []
    while cut:
        part, cut = cut[: pace.size], cut[pace.size :]
        spent.append(
            server.timed(
                lambda tx, part=part: pace.measured(
                    len(part), lambda: leases.expire(server.pool, tx, server.now, part)
                )
            )
        )
    return spent
