"""One, two and three servers on one PostgreSQL, with one queue and with many; also with a slow network to the database.

All of it is measured in turns. On few cores the rates of several servers cannot rise, as servers, database and clients
share them; the processor time for a job tells then what a server more costs. On a network with a delay servers wait,
and several of them wait at the same time.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import median
from typing import Any
from urllib.parse import urlsplit

import psycopg
from tests.delayed_network import delayed
from tests.postgres import PASSWORD

from benchmarks.figure import Figure, part
from benchmarks.filled import Store, fill_apart, store_at
from benchmarks.over_http import WARM, postmaster
from benchmarks.processes import cpu, cpu_of, family
from benchmarks.server import WITHIN, index_waiting, start
from benchmarks.shapes import Shape, Submission
from pilotage.core.queues.identity import QueueIdentity
from pilotage.wire.pilot import Node

SUMMARY = "jobs/s through one, two and three servers on one PostgreSQL, and their processor time"

ONE, MANY = "one queue", "many queues"
SUBMISSIONS = "submissions"
OWNERS = 10
JOBS_IN_A_SUBMISSION = 500
PEOPLE = 8
"""People who submit at the same time: all that one server answers at once."""
NOBODY_HAS = 10_000_000
"""MB of memory that submitted jobs ask for, so that they wait."""
NUMBERS = 1_000_000
"""Numbers of takes in one measurement; the next one begins above them."""
COUNTERS = {
    "lost draws": "pilotage_lost_draws_total",
    "repeated groups": "pilotage_replayed_groups_total",
    "messages": "pilotage_requests_total",
    "groups": "pilotage_commits_total",
}


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--most", type=int, default=3, help="servers")
    parser.add_argument("--clients", type=int, default=48, help="pilots that ask at the same time")
    parser.add_argument("--queues", type=int, default=200, help="of the many")
    parser.add_argument(
        "--jobs", type=int, default=100_000, help="in the one queue, and in the many together"
    )
    parser.add_argument(
        "--delays", default="0,1", help="ms of a round trip to the database, with commas between them"
    )
    parser.add_argument("--only", choices=(ONE, MANY, SUBMISSIONS), help="of the three kinds of load")
    parser.add_argument("--seconds", type=float, default=4.0)
    parser.add_argument("--turns", type=int, default=3)


def run(asked: argparse.Namespace) -> Figure:
    shape = _shape(asked)
    tokens = [f"token {number}" for number in range(2 * asked.clients)]
    with (
        tempfile.TemporaryDirectory(prefix="bench-servers-") as folder,
        store_at(Path(folder), "postgres") as store,
        ExitStack() as stack,
    ):
        filled = fill_apart(store, shape, "dirac", tokens)
        trial = _Trial(asked, Path(folder), store, tokens)
        delays = [float(text) for text in asked.delays.split(",")]
        ports = {delay: stack.enter_context(_network(store, delay)) for delay in delays}
        database = urlsplit(store.url).path.strip("/")
        os.environ["PGPASSWORD"] = PASSWORD
        for _ in range(asked.turns):
            for delay, port in ports.items():
                trial.turn(delay, f"postgresql://postgres@127.0.0.1:{port}/{database}")
    return _figure(asked, trial, shape, delays, filled)


def _figure(
    asked: argparse.Namespace, trial: _Trial, shape: Shape, delays: Sequence[float], filled: float
) -> Figure:
    kind, delay = asked.only or ONE, delays[-1]
    rates = [trial.rate(kind, delay, count) for count in range(1, asked.most + 1)]
    ours = trial.measured[kind, delay, min(2, asked.most)].rates
    peers = {"one server": rates[0]} | ({"three servers": rates[2]} if asked.most > 2 else {})
    peers |= {
        f"bare commits of {count}": trial.rate("commits", delay, count) for count in range(1, asked.most + 1)
    }
    notes = {
        "pool": f"{shape.told}; {trial.store.name}",
        "load": f"{asked.clients} pilots, which ask for a job, confirm one and end one by each message;"
        f" {PEOPLE} people who submit",
        "ours": f"two servers, {kind}, {delay:g} ms to the database; medians of {asked.turns} turns",
    }
    for (name, wait, count), one in trial.measured.items():
        notes[f"{name}, {wait:g} ms, {count}"] = one.told()
    notes["filling"] = f"{filled:.1f} s"
    ratio = round(median(ours) / rates[0], 3) if rates[0] else 0.0
    return Figure("servers", round(median(ours), 1), "jobs/s", peers, ratio, ours, notes)


@dataclass
class _Measured:
    """One kind of load with one number of servers, in all turns."""

    rates: list[float] = field(default_factory=list)
    servers: list[float] = field(default_factory=list)
    """µs of processor time of all servers for a job; `database`: of PostgreSQL."""
    database: list[float] = field(default_factory=list)
    latencies: list[float] = field(default_factory=list)
    counts: dict[str, float] = field(default_factory=dict)

    def told(self) -> str:
        if not self.servers:
            return f"{median(self.rates):,.0f}/s"
        counts, ordered = self.counts, sorted(self.latencies)
        return (
            f"{median(self.rates):,.0f}/s; µs of processor time each: servers {median(self.servers):,.0f},"
            f" database {median(self.database):,.0f}; p50 {part(ordered, 0.5) * 1000:.0f} ms,"
            f" p99 {part(ordered, 0.99) * 1000:.0f} ms; {counts['messages'] / max(1, counts['groups']):.1f} messages a"
            f" group; {counts['deadlocks']:.0f} deadlocks, {counts['lost draws']:.0f} lost draws,"
            f" {counts['empty']:.0f} empty, {counts['refused']:.0f} refused,"
            f" {counts['repeated groups']:.0f} repeated groups of {counts['done']:,.0f} jobs"
        )


class _Trial:
    """Servers on one database that are started and stopped, and what was measured of them."""

    def __init__(self, asked: argparse.Namespace, folder: Path, store: Store, tokens: Sequence[str]) -> None:
        self.asked, self.folder, self.store, self.tokens = asked, folder, store, tokens
        self.measured: dict[tuple[str, float, int], _Measured] = {}
        self._measurements = 0

    def rate(self, kind: str, delay: float, count: int) -> float:
        return round(median(self.measured[kind, delay, count].rates), 1)

    def turn(self, delay: float, url: str) -> None:
        """One server, then one more, and so on; all of them end."""
        servers: list[_Server] = []
        try:
            for count in range(1, self.asked.most + 1):
                servers.append(_Server(self.folder, count, url))
                for kind in (ONE, MANY, SUBMISSIONS):
                    if self.asked.only in (None, kind):
                        self._measure(kind, delay, servers)
                rate = _bare_commits(url, count, self.asked.seconds / 4)
                self.measured.setdefault(("commits", delay, count), _Measured()).rates.append(rate)
        finally:
            for one in servers:
                one.stop()

    def _measure(self, kind: str, delay: float, servers: Sequence[_Server]) -> None:
        one = self.measured.setdefault((kind, delay, len(servers)), _Measured())
        database, seconds = family(int(postmaster(self.store))), self.asked.seconds
        begin = time.monotonic() + WARM
        process = self._start_clients(kind, servers, begin)
        try:
            time.sleep(max(0.0, begin - time.monotonic()))
            before, spent, of_database = self._counters(servers), _spent(servers), cpu_of(database)
            time.sleep(max(0.0, begin + seconds - time.monotonic()))
            spent, of_database = _spent(servers) - spent, cpu_of(database) - of_database
            after = self._counters(servers)
            assert process.stdout is not None
            answer = json.loads(process.stdout.read())
            process.wait(30)
        finally:
            if process.poll() is None:
                process.kill()
                process.wait()
        done = max(1, answer["done"])
        one.rates.append(round(answer["done"] / seconds, 1))
        one.servers.append(spent / done * 1e6)
        one.database.append(of_database / done * 1e6)
        one.latencies += answer["latencies"]
        counted = {name: after[name] - before[name] for name in after}
        for name, value in {
            **counted,
            **{name: answer[name] for name in ("done", "empty", "refused")},
        }.items():
            one.counts[name] = one.counts.get(name, 0) + value

    def _start_clients(self, kind: str, servers: Sequence[_Server], begin: float) -> subprocess.Popen[str]:
        self._measurements += 1
        task: dict[str, Any] = {
            "servers": [one.address for one in servers],
            "begin": begin,
            "end": begin + self.asked.seconds,
            "pilots": [],
            "people": [],
        }
        if kind == SUBMISSIONS:
            descriptions = [
                {"executable": "true", "memory": NOBODY_HAS, "job_type": f"T{number}"}
                for number in range(self.asked.queues)
            ]
            token = (servers[0].home / "token").read_text().strip()
            task["people"] = [
                {"token": token, "key": f"{self._measurements} {number}", "descriptions": descriptions}
                for number in range(PEOPLE)
            ]
        else:
            node = asdict(Node("n", "el9", 1, 4000, 1e6, wall_left=1e6, isolation="userns"))
            mine = self.tokens[kind == MANY :: 2]
            number = NUMBERS * self._measurements
            task["pilots"] = [{"token": token, "node": node, "number": number} for token in mine]
        process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.life_clients"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert process.stdin is not None
        process.stdin.write(json.dumps(task))
        process.stdin.close()
        return process

    def _counters(self, servers: Sequence[_Server]) -> dict[str, float]:
        found = dict.fromkeys(COUNTERS, 0.0)
        for one in servers:
            metrics = one.metrics()
            for name, metric in COUNTERS.items():
                found[name] += metrics.get(metric, 0.0)
        with psycopg.connect(self.store.url) as session:
            sql = b"SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()"
            found["deadlocks"] = float((session.execute(sql).fetchone() or (0,))[0])
        return found


class _Server:
    """One of the servers; the first makes the key for signing, which the others share."""

    def __init__(self, folder: Path, number: int, url: str) -> None:
        self._folder = folder / f"server{number}"
        self.home = self._folder / "home"
        if not self.home.exists():
            self._folder.mkdir()
            self.home.mkdir(mode=0o700)
            if number > 1:
                (self.home / "secrets").mkdir(mode=0o700)
                key = Path("secrets") / "signing.key"
                shutil.copy(folder / "server1" / "home" / key, self.home / key)
        (self.home / "server.json").unlink(missing_ok=True)
        self._process = start(self._folder, url, "--sandboxes", str(folder / "sandboxes"))
        self.pid = self._process.pid
        deadline = time.monotonic() + WITHIN
        while not (self.home / "server.json").exists() or index_waiting(self.url) <= 0:
            if self._process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError((self._folder / "server.log").read_text())
            time.sleep(0.05)

    @property
    def url(self) -> str:
        return str(json.loads((self.home / "server.json").read_text())["url"])

    @property
    def address(self) -> tuple[str | None, int | None]:
        place = urlsplit(self.url)
        return place.hostname, place.port

    def metrics(self) -> dict[str, float]:
        with urllib.request.urlopen(f"{self.url}/metrics", timeout=60) as answer:
            lines = answer.read().decode().splitlines()
        pairs = (line.rpartition(" ") for line in lines if not line.startswith("#"))
        return {name: float(value) for name, _, value in pairs}

    def stop(self) -> None:
        self._process.send_signal(signal.SIGTERM)
        try:
            self._process.wait(WITHIN)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


def _spent(servers: Sequence[_Server]) -> float:
    return sum(cpu(one.pid) for one in servers)


def _shape(asked: argparse.Namespace) -> Shape:
    """The one queue is for one site, the many for another one."""

    def queue(number: int, site: str) -> QueueIdentity:
        return QueueIdentity(f"o{number % OWNERS}", "g", job_type=f"T{number}", sites=frozenset({site}))

    queues = [queue(0, "one"), *(queue(number, "many") for number in range(asked.queues))]
    submissions = []
    for place in range(0, asked.jobs, JOBS_IN_A_SUBMISSION):
        count = min(JOBS_IN_A_SUBMISSION, asked.jobs - place)
        many = 1 + place // JOBS_IN_A_SUBMISSION % asked.queues
        submissions += [Submission(0, 1, count), Submission(many, 1, count)]
    told = f"{asked.jobs:,} jobs in one queue, as many in {asked.queues}"
    return Shape(queues, submissions, ("one", "many"), ("el9",), (1e6,), told)


@contextmanager
def _network(store: Store, delay: float) -> Iterator[int]:
    """The port of the database, if need be behind a network with a delay of so many ms."""
    if delay <= 0:
        yield store.server.port
        return
    with delayed(store.server.port, delay / 1000) as port:
        yield port


def _bare_commits(url: str, sessions: int, seconds: float) -> float:
    """Transactions a second of sessions that change one row each, and do nothing else."""
    with psycopg.connect(url, autocommit=True) as session:
        session.execute("CREATE TABLE IF NOT EXISTS bare (id int PRIMARY KEY, number int)")
        session.execute("INSERT INTO bare SELECT n, 0 FROM generate_series(1, 9) n ON CONFLICT DO NOTHING")
    done = [0] * sessions
    end = time.monotonic() + seconds

    def commit(place: int) -> None:
        with psycopg.connect(url, autocommit=True) as session:
            while time.monotonic() < end:
                session.execute("UPDATE bare SET number = number + 1 WHERE id = %s", (place + 1,))
                done[place] += 1

    threads = [threading.Thread(target=commit, args=(place,)) for place in range(sessions)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return round(sum(done) / seconds, 1)
