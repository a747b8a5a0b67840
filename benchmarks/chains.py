"""Jobs in layers, each job after its counterpart of the layer before, at a real server with a pilot that is played."""

from __future__ import annotations

import argparse
import json
import sqlite3
import tempfile
import time
from contextlib import closing
from pathlib import Path
from statistics import median
from typing import Any

import httpx

from benchmarks.figure import Figure, part
from benchmarks.processes import cpu
from benchmarks.server import served, server_pid
from pilotage.services.pilots.enrolment import secret_hash

SUMMARY = (
    "ms from the commit of a parent's end until its child is offered, and jobs of 1,000 layers per second"
)

AIM_MS = 5.0
PAUSE = 0.002
"""Seconds between two looks at the database while no job waits. A message of the pilot would be work for the server."""
SECRET = "of the pilot that is played"
NODE = {"hostname": "h", "processors": 100_000, "cpu_left": 1e9, "tags": ["paper"]}
DESCRIPTION = {"executable": "true", "tags": ["paper"]}


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--layers", type=int, default=1000)
    parser.add_argument("--width", type=int, default=100, help="jobs of a layer")
    parser.add_argument("--chain", type=int, default=300, help="single jobs, of which each release is timed")


def run(asked: argparse.Namespace) -> Figure:
    with tempfile.TemporaryDirectory(prefix="bench-chains-") as name, served(Path(name)) as client:
        token = (Path(name) / "home" / "token").read_text().strip()
        database = Path(name) / "home" / "pilotage.db"
        pilot = _Pilot(client.url, database, token)
        process = server_pid(Path(name))
        plain = _single_jobs(client, pilot, asked.chain, process)
        spent = _single_releases(client, pilot, asked.chain, database, process)
        delays = sorted(_delays(database))
        begun = time.perf_counter()
        client.submit_graph(_graph(asked.layers, asked.width, "after_each"))
        submitting = time.perf_counter() - begun
        begun = time.perf_counter()
        jobs = asked.layers * asked.width
        ended = 0
        while ended < jobs:
            ended += pilot.turn(256)
        running = time.perf_counter() - begun
        pilot.turn(0)
    notes = {
        "release": f"{part(delays, 0.95):.2f} ms (95 %), {delays[-1]:.2f} ms (most), with the commit of the end;"
        f" {spent - plain:.2f} ms of the server's processor: {spent:.2f} for a job of a chain, {plain:.2f} for another",
        "submission": f"{jobs:,} jobs in {asked.layers:,} layers in {submitting:.1f} s, as one graph",
        "all layers": f"{running:.1f} s, {jobs / running:,.0f} jobs/s with their matches and ends",
    }
    ours = round(median(delays), 2)
    return Figure("chains", ours, "ms", {"aim": AIM_MS}, round(ours / AIM_MS, 3), [ours], notes)


def _graph(layers: int, width: int, field: str) -> dict[str, Any]:
    jobs: dict[str, Any] = {}
    for number in range(layers):
        after = {field: f"layer{number - 1}"} if number else {}
        jobs[f"layer{number}"] = {**DESCRIPTION, "parameters": width, "arguments": "%s", **after}
    return {"jobs": jobs}


def _single_jobs(client: Any, pilot: _Pilot, jobs: int, process: int) -> float:
    """Milliseconds of the server's processor for each of these jobs, which no other job waits for."""
    client.submit(DESCRIPTION, values=list(range(jobs)))
    pilot.take(1)
    before = cpu(process)
    for _ in range(jobs - 1):
        pilot.finish()
        pilot.take(1)
    pilot.finish()
    return (cpu(process) - before) / jobs * 1000


def _single_releases(client: Any, pilot: _Pilot, jobs: int, database: Path, process: int) -> float:
    """Milliseconds of the server's processor for each job of a chain: the same messages, and the releases."""
    client.submit_graph({"jobs": {
        f"step{number}": {**DESCRIPTION, **({"after_ok": f"step{number - 1}"} if number else {})}
        for number in range(jobs)
    }})  # fmt: skip
    pilot.take(1)
    before = cpu(process)
    with closing(sqlite3.connect(database, timeout=60)) as connection:
        for _ in range(jobs - 1):
            pilot.finish()
            while not connection.execute("SELECT 1 FROM jobs WHERE state = 'Waiting' LIMIT 1").fetchone():
                time.sleep(PAUSE)
            pilot.take(1)
    pilot.finish()
    return (cpu(process) - before) / jobs * 1000


def _delays(database: Path) -> list[float]:
    """Milliseconds by the event log from the end of each job until its child waits, by the server's clock."""
    ends: dict[int, float] = {}
    delays = []
    with closing(sqlite3.connect(database, timeout=60)) as connection:
        events = connection.execute(
            "SELECT kind, at, jobs FROM events WHERE kind IN ('finished', 'unblocked') ORDER BY id"
        )
        for kind, at, jobs in events:
            for job, *_ in json.loads(jobs):
                if kind == "finished":
                    ends[job] = at
                elif job - 1 in ends:
                    delays.append((at - ends[job - 1]) * 1000)
    return delays


class _Pilot:
    """A pilot that takes jobs and ends them at once."""

    def __init__(self, url: str, database: Path, token: str) -> None:
        sql = (
            "INSERT INTO pilots (id, stamp, secret_hash, idx, state, site, ce, pilot_type, processors, memory,"
            " submitted, batch_id) SELECT 999, 'paper', ?, 0, 'Submitted', ?, 'local', 'generic', 100000, 0, 0, '@x'"
        )
        self._http = httpx.Client(base_url=url, timeout=120, trust_env=False)
        headers = {"Authorization": f"Bearer {token}"}
        site = self._http.get("/v1/ces", headers=headers).json()[0]["site"]
        with closing(sqlite3.connect(database, timeout=60)) as connection, connection:
            connection.execute(sql, (secret_hash(SECRET), site))
        answer = self._http.post("/v1/pilot/enrol", json={"secret": SECRET, "index": 0, "nonce": "n"}).json()
        self._headers = {"Authorization": f"Bearer {answer['token']}"}
        self._incarnation = answer["incarnation"]
        self._number = 1
        self._held: list[dict[str, Any]] = []

    def _send(self, **parts: Any) -> dict[str, Any]:
        body = {"incarnation": self._incarnation, **parts}
        answer: dict[str, Any] = self._http.post(
            "/v1/pilot/exchange", json=body, headers=self._headers
        ).json()
        if answer.get("take_number"):
            self._number = max(self._number, answer["take_number"]) + 1
        self._held += answer.get("offers") or []
        return answer

    def _ends(self) -> list[dict[str, Any]]:
        ends = [{"job": offer["job"], "epoch": offer["epoch"], "exit_code": 0} for offer in self._held]
        self._held.clear()
        return ends

    def take(self, count: int) -> int:
        self._send(take={"number": self._number, "count": count, "node": NODE})
        return len(self._held)

    def finish(self) -> None:
        self._send(finishes=self._ends())

    def turn(self, count: int) -> int:
        """End all jobs at hand and ask for more, in one message. Returns the number of ended jobs."""
        ends = self._ends()
        self._send(finishes=ends, take={"number": self._number, "count": max(1, count), "node": NODE})
        return len(ends)
