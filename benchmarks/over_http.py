"""Matches of a real server, requested over HTTP with keep-alive by separate processes."""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from pathlib import Path
from random import Random
from typing import Any
from urllib.parse import urlsplit

from benchmarks import asked as in_process
from benchmarks.figure import Figure
from benchmarks.filled import Store, fill, fill_apart
from benchmarks.match import latency_told, pool_told
from benchmarks.processes import cpu, cpu_of, family, memory
from benchmarks.server import index_waiting, served
from benchmarks.shapes import Shape

WARM = 1.5
"""Seconds before counting begins, including the start of the clients."""
PILOTS = 4
"""Pilots per connection. No job ends here, so a single pilot would hold more jobs than a real pilot."""


def measured(asked: argparse.Namespace, folder: Path, store: Store, shape: Shape) -> Figure:
    ask = asked.ask or 16
    rng = Random(3)
    tokens = [f"token {number}" for number in range(asked.clients * PILOTS)]
    pilots = [[token, asdict(shape.node(rng, ask))] for token in tokens]
    filled = fill(store, shape, asked.rule, tokens, interleaved=asked.interleaved)
    begun = time.perf_counter()
    with served(folder, again=True, database=store.url) as client:
        while index_waiting(client.url) < shape.jobs:
            time.sleep(0.1)
        started = time.perf_counter() - begun
        pid = json.loads((folder / "home" / "server.json").read_text())["pid"]
        database = family(int(postmaster(store))) if store.url else []
        answers, used, used_by_database = ask_from_processes(asked, client.url, pilots, ask, pid, database)
        most = memory(pid, "VmHWM")
    with in_process.opened(store, shape, ()) as site:
        raw = site.raw_limit(asked.seconds / 4)
    seconds = asked.seconds
    rate = round(sum(one["matched"] for one in answers) / seconds, 1)
    share = [f"{one['cpu'] / seconds:.0%}" for one in answers]
    latencies = [second for one in answers for second in one["latencies"]]
    empty, refused = (sum(one[what] for one in answers) for what in ("empty", "refused"))
    notes = {
        "pool": pool_told(asked, store, shape),
        "asking": f"{asked.clients} connections of {asked.processes} processes, {ask} jobs at a time;"
        f" {len(latencies):,} answers, {rate * seconds / max(1, len(latencies)):.1f} jobs in each, {empty} without;"
        f" {refused} refused",
        "latency": latency_told(latencies),
        "processor": f"server {used / seconds:.0%}, clients {', '.join(share)}"
        + (f", database {used_by_database / seconds:.0%}" if database else ""),
        "server's memory": f"{most} MB at most",
        "server": f"had its whole index after {started:.1f} s",
        "filling": f"{filled:.1f} s",
    }
    return Figure(
        "match --http", rate, "jobs/s", {"raw claims": round(raw, 1)}, round(rate / raw, 3), [rate], notes
    )


@dataclass
class _Served:
    """A server that is asked in turns with another one."""

    home: Path
    url: str
    pilots: list[Any]
    rates: list[float] = field(default_factory=list)
    used: float = 0.0
    """CPU seconds while its jobs were counted."""

    @property
    def pid(self) -> int:
        return int(self._facts["pid"])

    @property
    def pins(self) -> list[str]:
        return list(self._facts.get("fingerprints", ()))

    @property
    def _facts(self) -> dict[str, Any]:
        facts: dict[str, Any] = json.loads((self.home / "server.json").read_text())
        return facts


def in_turns(
    asked: argparse.Namespace,
    pools: Sequence[tuple[Path, Store, Shape]],
    turns: int,
    listen: Sequence[str] = ("", ""),
) -> tuple[list[list[float]], list[float]]:
    """Jobs per second of each pool in each turn, and microseconds of its server's processor time for a job.

    Each pool has its own server; `listen`: their addresses.
    """
    ask = asked.ask or 16
    # A client numbers its takes from 1, so each turn has its own pilots.
    of_turn = asked.clients * PILOTS
    tokens = [f"token {number}" for number in range(of_turn * turns)]
    part = argparse.Namespace(**{**vars(asked), "seconds": asked.seconds / turns})
    with ExitStack() as stack:
        servers = []
        for (folder, store, shape), address in zip(pools, listen, strict=True):
            fill_apart(store, shape, asked.rule, tokens, interleaved=asked.interleaved)
            client = stack.enter_context(served(folder, again=True, database=store.url, listen=address))
            rng = Random(3)
            pilots = [[token, asdict(shape.node(rng, ask))] for token in tokens]
            server = _Served(folder / "home", client.url, pilots)
            servers.append(server)
            while index_waiting(server.url, server.pins) < shape.jobs:
                time.sleep(0.1)
        for turn in range(turns):
            for server in servers:
                mine = server.pilots[turn * of_turn : (turn + 1) * of_turn]
                answers, used, _ = ask_from_processes(
                    part, server.url, mine, ask, server.pid, [], server.pins
                )
                server.rates.append(round(sum(answer["matched"] for answer in answers) / part.seconds, 1))
                server.used += used
        jobs = [max(1.0, sum(server.rates) * part.seconds) for server in servers]
    costs = [server.used / count * 1e6 for server, count in zip(servers, jobs, strict=True)]
    return [server.rates for server in servers], costs


def postmaster(store: Store) -> str:
    return str((store.server.folder / "data" / "postmaster.pid").read_text().split()[0])


def ask_from_processes(
    asked: argparse.Namespace,
    url: str,
    pilots: Sequence[Any],
    ask: int,
    server: int,
    database: Sequence[int],
    pins: Sequence[str] = (),
) -> tuple[list[dict[str, Any]], float, float]:
    """The answers of the clients; CPU seconds of the server and of its database while they counted."""
    place = urlsplit(url)
    begin = time.monotonic() + WARM
    task = {
        "host": place.hostname,
        "port": place.port,
        "pins": list(pins),
        "ask": ask,
        "begin": begin,
        "end": begin + asked.seconds,
    }
    clients = [
        _start_client(
            task,
            pilots[number :: asked.processes],
            connections=len(range(asked.clients)[number :: asked.processes]),
        )
        for number in range(asked.processes)
    ]
    try:
        time.sleep(max(0.0, begin - time.monotonic()))
        before, database_before = cpu(server), cpu_of(database)
        time.sleep(max(0.0, begin + asked.seconds - time.monotonic()))
        used, database_used = cpu(server) - before, cpu_of(database) - database_before
        answers = []
        for process in clients:
            assert process.stdout is not None
            answers.append(json.loads(process.stdout.read()))
            process.wait(30)
    finally:
        for process in clients:
            if process.poll() is None:
                process.kill()
                process.wait()
    return answers, used, database_used


def _start_client(task: dict[str, Any], pilots: Sequence[Any], *, connections: int) -> subprocess.Popen[str]:
    """Start a client process with `connections` connections, and send its task to it."""
    process = subprocess.Popen(
        [sys.executable, "-m", "benchmarks.clients"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdin is not None
    process.stdin.write(json.dumps({**task, "pilots": pilots, "connections": connections}))
    process.stdin.close()
    return process
