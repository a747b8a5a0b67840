"""The decisions of one iteration of the director, with thousands of queues and tens of thousands of pilots.

All times are processor time, but for the counts of the database.
"""

from __future__ import annotations

import argparse
import secrets
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from random import Random
from typing import TypeVar

from benchmarks.ce_ads import ce_values, requirement_sets
from benchmarks.figure import Figure, part, told
from pilotage.core.classads import parse_expression, unparse
from pilotage.core.glue.information import CeInformation, HostClass
from pilotage.core.ids import QueueId
from pilotage.core.policy import parse
from pilotage.core.queues.identity import QueueIdentity
from pilotage.server.loop_turns import TURN, run_turn
from pilotage.server.process.gc_tuning import freeze_gc
from pilotage.services.director.demand import (
    DemandCounts,
    Iteration,
    post_orders,
    prepare,
    read_counts,
)
from pilotage.services.director.unneeded import CANCELLED_AT_ONCE, UnneededPilots, cancel_pilots
from pilotage.services.pool.index_loading import open_pool
from pilotage.services.pool.state import Pool
from pilotage.store.admin.upgrade import sqlite_engine, upgrade
from pilotage.store.engine.connection import Connection, WriterConnection
from pilotage.store.engine.sqlite import open_writer
from pilotage.store.tables import instance, submissions
from pilotage.store.writer.transaction import Transaction
from pilotage.wire.pilot import Node

SUMMARY = "ms of the decisions of one director's iteration: 5,000 queues, 200 CEs, 50,000 pilots"

SITES, OWNERS, GROUPS = 60, 200, 20
AIM = 300.0

Answer = TypeVar("Answer")


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--queues", type=int, default=5000)
    parser.add_argument("--ces", type=int, default=200)
    parser.add_argument("--pilots", type=int, default=50000)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument(
        "--information",
        action="store_true",
        help="CEs tell GLUE facts, and every second queue has Requirements",
    )
    parser.add_argument("--demand", choices=("dirac", "matched"), default="dirac")


def run(asked: argparse.Namespace) -> Figure:
    with (
        tempfile.TemporaryDirectory(prefix="bench-director-") as name,
        _filled(Path(name), asked) as (
            connection,
            pool,
        ),
    ):
        # As a server does after its start.
        freeze_gc()
        runs, turns, counts, ordered = [], [], [], 0
        unneeded = UnneededPilots()
        last: Iteration | None = None
        for number in range(asked.runs + 1):
            clock = _Turns()
            begun = time.perf_counter()
            rows = read_counts(connection, pool.policy, {}, time.time())
            counting = (time.perf_counter() - begun) * 1000
            work: Iteration = _iteration(connection, pool, rows, Random(number), clock)
            _cancel_unneeded(connection, pool, unneeded, work, clock)
            parts: list[Sequence[object]] = last.parts() if last is not None else []
            with clock.turn():
                last = work
            while parts:
                with clock.turn():
                    parts.pop()
            ordered = sum(decision.submitted for decision in work.decisions)
            if number:
                # The first iteration matches all queues with all CEs; later ones find the answers in the index.
                runs.append(clock.total)
                turns.append(clock.longest)
                counts.append(counting)
            else:
                first = clock
    typical = sorted(runs)[len(runs) // 2]
    notes = {
        "longest turn of the loop": f"{max(turns):.1f} ms of processor time, median of the iterations"
        f" {part(sorted(turns), 0.5):.1f} (first iteration {first.longest:.1f})",
        "first iteration": f"{first.total:.0f} ms",
        "counts by the database, in another thread": f"{part(sorted(counts), 0.5):.0f} ms",
        "facts": f"{asked.queues:,} queues, {asked.ces} CEs, {asked.pilots:,} pilots, demand {asked.demand}",
        "ordered": f"{told(ordered)} pilots",
    }
    return Figure(
        *("director", round(typical, 1), "ms", {"aim": AIM}, round(typical / AIM, 3)),
        [round(t, 1) for t in runs],
        notes,
    )


def _request(connection: WriterConnection, request: Callable[[Transaction], Answer]) -> Answer:
    """A request to the writer, in a transaction of its own."""
    connection.begin()
    answer = request(Transaction(connection))
    connection.execute("COMMIT")
    return answer


class _Turns:
    """The processor time of each turn of the event loop."""

    def __init__(self) -> None:
        self.total = self.longest = 0.0
        self._begun = 0.0

    @contextmanager
    def turn(self) -> Iterator[None]:
        begun = time.thread_time()
        yield
        self._note((time.thread_time() - begun) * 1000)

    def _note(self, took: float) -> None:
        self.total += took
        self.longest = max(self.longest, took)


def _iteration(
    writer: WriterConnection, pool: Pool, rows: DemandCounts, rng: Random, clock: _Turns
) -> Iteration:
    """As the duty does it: each request to the writer, and each slice of decisions, is a turn."""
    preparing, work = prepare(pool, rows, {}, time.time()), None
    while work is None:
        with clock.turn():
            work = _request(writer, lambda _: run_turn(preparing, time.perf_counter))
    steps = work.decide(rng)
    ended = False
    while not ended:
        with clock.turn():
            until = time.perf_counter() + TURN
            while not ended and time.perf_counter() < until:
                ended = next(steps, work) is work
    with clock.turn():
        _request(writer, lambda tx: _post_and_drop(pool, tx, work))
    return work


def _cancel_unneeded(
    writer: WriterConnection, pool: Pool, memory: UnneededPilots, work: Iteration, clock: _Turns
) -> None:
    """Only demand matched has pilots that are not needed. They are found in another thread."""
    later = time.time() + work.policy.director.cancel_after
    pilots = memory.note(writer, work, later)
    for first in range(0, len(pilots), CANCELLED_AT_ONCE):
        part = pilots[first : first + CANCELLED_AT_ONCE]
        with clock.turn():
            _request(writer, lambda tx, part=part: cancel_pilots(pool, tx, work, part, later))


def _post_and_drop(pool: Pool, tx: Transaction, work: Iteration) -> None:
    post_orders(pool, tx, work)
    tx.set(pool.provisioning, "orders", {})


@contextmanager
def _filled(folder: Path, asked: argparse.Namespace) -> Iterator[tuple[WriterConnection, Pool]]:
    """A pool with waiting queues and live pilots."""
    path = folder / "pool.db"
    engine = sqlite_engine(path)
    upgrade(engine)
    engine.dispose()
    text = _policy(asked)
    with closing(open_writer(path)) as connection:
        connection.execute("PRAGMA synchronous=OFF")
        connection.execute("BEGIN")
        instance.create(connection, "bench", 0.0)
        instance.save_policy(connection, text=text, now=0.0, by="bench", reason="")
        queues = _fill_queues(connection, asked.queues, information=asked.information)
        _fill_jobs(connection, queues)
        _fill_pilots(connection, asked, queues)
        connection.execute("COMMIT")
        yield connection, _open(connection, text, asked)


def _open(writer: WriterConnection, text: str, asked: argparse.Namespace) -> Pool:
    def opened(tx: Transaction) -> Pool:
        return open_pool(
            tx,
            parse(text),
            version=1,
            incarnation=1,
            rng=Random(1),
            secrets=secrets,
            home_owner="u0",
        )

    pool: Pool = _request(writer, opened)
    node = Node(platform="el9", processors=4, memory=0)
    _request(writer, lambda tx: [tx.put(pool.ces.nodes, f"c{number}", node) for number in range(asked.ces)])
    if asked.information:
        _request(writer, lambda tx: _tell_information(pool, tx, asked.ces))
    return pool


def _tell_information(pool: Pool, tx: Transaction, ces: int) -> None:
    rng, now = Random(4), time.time()
    for number in range(ces):
        values, classes = ce_values(number, rng)
        hosts = tuple(HostClass(4, host) for host in classes)
        values |= {"GlueCEStateStatus": "Production", "GlueCEPolicyMaxTotalJobs": 999999}
        facts = CeInformation(values, hosts, updated=now, expiry=1e6)
        tx.put(pool.ces.information, f"c{number}", facts)


def _policy(asked: argparse.Namespace) -> str:
    vo = 'vo = "vo{0:02}.example.org"\n' if asked.information else ""
    lines = [f"[groups.g{number}]\n{vo.format(number)}share = {100 + number}" for number in range(GROUPS)]
    lines += [f'[users.u{number}]\ngroups = ["g{number % GROUPS}"]' for number in range(OWNERS)]
    lines += [f"[sites.s{number}]" for number in range(SITES)]
    lines += [
        f'[ces.c{number}]\nsite = "s{number % SITES}"\ntype = "slurm"\nowners = "any"\nwall = 400000\n'
        f"max_waiting = {20 + asked.pilots // asked.ces}\nmax_running = 100000\npilot_processors = {1 + number % 4}"
        for number in range(asked.ces)
    ]
    return "\n".join(
        [
            *lines,
            f'[director]\ndemand = "{asked.demand}"\n[director.pools.Batch]\ntotalThreadsInPool = 100000\n',
        ]
    )


def _fill_queues(connection: Connection, count: int, *, information: bool) -> list[QueueId]:
    rng = Random(1)
    sets = [f"{unparse(parse_expression(text))}" for text in requirement_sets(100, Random(5))]
    ids = []
    for number in range(count):
        owner = number % OWNERS
        sites = frozenset(f"s{rng.randrange(SITES)}" for _ in range(rng.choice((0, 0, 3, 10))))
        requirements = f"target.Processors >= {number % 3}" if number % 10 == 1 else ""
        if information and number % 2:
            requirements = sets[number % len(sets)]
        identity = QueueIdentity(
            f"u{owner}",
            f"g{owner % GROUPS}",
            cpu_time=rng.choice((500, 5000, 50000, 300000)),
            processors=rng.choice((1, 1, 1, 2)),
            job_type=f"Type{number}",
            sites=sites,
            requirements=requirements,
        )
        ids.append(submissions.insert_queue(connection, identity, 0.0))
    return ids


def _fill_jobs(connection: Connection, queues: list[QueueId]) -> None:
    """One submission, and 1 to 100 waiting jobs for each queue."""
    rng = Random(2)
    connection.execute(
        "INSERT INTO submissions (id, owner, grp, submitted, description, inputs, names, job_name, job_group,"
        " job_type, queue_id, first_job, count, warnings)"
        " VALUES (1, 'u0', 'g0', 1, '{}', '[]', '[]', '', '', '', ?, 1, 1, '[]')",
        (queues[0],),
    )
    of_job = [queue for queue in queues for _ in range(rng.choice((1, 3, 10, 30, 100)))]
    connection.executemany(
        "INSERT INTO jobs (id, submission_id, queue_id, state, user_priority, submitted)"
        " VALUES (?, 1, ?, 'Waiting', 1, 1)",
        list(enumerate(of_job, 1)),
    )


def _fill_pilots(connection: Connection, asked: argparse.Namespace, queues: list[QueueId]) -> None:
    """Every second pilot runs, the others wait for one of the queues."""
    rng, now = Random(3), time.time()
    rows = (
        (
            number,
            f"stamp{number}",
            "Running" if number % 2 else "Waiting",
            f"s{number % asked.ces % SITES}",
            f"c{number % asked.ces}",
            1 + number % asked.ces % 4,
            now - 100,
            now - 50 if number % 2 else None,
            rng.choice(queues),
        )
        for number in range(1, asked.pilots + 1)
    )
    connection.executemany(
        "INSERT INTO pilots (id, stamp, secret_hash, idx, state, site, ce, pilot_type, processors, memory, submitted,"
        " started, queue_id) VALUES (?, ?, '', 0, ?, ?, ?, 'generic', ?, 0, ?, ?, ?)",
        rows,
    )
