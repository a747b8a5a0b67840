"""A request over ten sites with three agents. Processes are killed half-way: every event is once in its result.

`PILOTAGE_ELEMENT_JOBS=20000` makes it as large as that; by default it is small.
"""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest

from tests import postgres
from tests.deadlines import PATIENCE
from tests.faults.mask_audit import RequestAudit, audit_request
from tests.faults.pair import Pair
from tests.instance import Instance, children, output_of, until

JOBS = int(os.environ.get("PILOTAGE_ELEMENT_JOBS", "400"))
EVENTS_PER_JOB, JOBS_PER_FILE, FILES_PER_BLOCK = 10, 20, 5
EVENTS = JOBS * EVENTS_PER_JOB
pytestmark = pytest.mark.slow

SITES = [f"site{number}" for number in range(10)]
WHOLE = PATIENCE + JOBS / 20

POLICY_OF_SITES = "".join(
    f"""
[sites.{site}]
storage = ["{{storage}}"]
[ces.{site}]
site = "{site}"
owners = "any"
processors = 1
memory = 2000
heartbeat = 0.5
lease = {{lease}}
idle = 3
"""
    for site in SITES
)

REQUESTS = """
[requests]
agent_team = ""
agent_lease = 3.0
agent_period = 0.5
thresholds = [
    { type = "", pending = 200, running = 200 },
    { type = "Processing", pending = 200, running = 200 },
]
"""

REQUEST = f"""
name = "sum"
team = "away"
input = "/toys/numbers"

[program]
executable = "/bin/sh"
arguments = ["-c", "echo $PILOTAGE_EVENTS > events.txt"]

[splitting]
algorithm = "EventBased"
events_per_job = {EVENTS_PER_JOB}

[output]
files = ["events.txt"]
dataset = "/toys/sums"

[merge]
min_size = "1 MB"
max_size = "2 MB"
"""


@contextmanager
def agents(instances: Sequence[Instance], count: int) -> Iterator[list[subprocess.Popen[bytes]]]:
    """Agents as processes of their own, spread over the servers; all are ended."""
    started: list[subprocess.Popen[bytes]] = []
    try:
        for number in range(count):
            instance = instances[number % len(instances)]
            with (instance.home / f"agent{number}.log").open("ab") as log:
                command = [sys.executable, "-m", "pilotage.main", "agent", "--team", "away"]
                command += ["--name", f"agent{number}", "--home", str(instance.home)]
                started.append(subprocess.Popen(command, stdout=log, stderr=log, stdin=subprocess.DEVNULL))
        yield started
    finally:
        for process in started:
            process.kill()
            process.wait()


def manifest(folder: Path) -> Path:
    """Files with events in blocks at two of the ten sites each."""
    (folder / "data").mkdir()
    files = max(JOBS // JOBS_PER_FILE, 1)
    blocks = []
    for first in range(0, files, FILES_PER_BLOCK):
        number = first // FILES_PER_BLOCK
        names = [f"numbers{place}.txt" for place in range(first, min(first + FILES_PER_BLOCK, files))]
        for name in names:
            (folder / "data" / name).write_text("data\n")
        sites = [SITES[number % 10], SITES[(number * 7 + 3) % 10]]
        blocks.append(
            {
                "name": f"block{number}",
                "replicas": {site: str(folder / "data") for site in sorted(set(sites))},
                "files": [
                    {"name": name, "size": 5, "events": EVENTS_PER_JOB * JOBS_PER_FILE} for name in names
                ],
            }
        )
    path = folder / "numbers.json"
    path.write_text(json.dumps({"name": "/toys/numbers", "blocks": blocks}))
    return path


@contextmanager
def database(instance: Instance) -> Iterator[Any]:
    if instance.database_url:
        with psycopg.connect(instance.database_url) as session:
            yield session
    else:
        with closing(sqlite3.connect(f"file:{instance.home}/pilotage.db?mode=ro", uri=True)) as connection:
            yield connection


def done_jobs(instance: Instance) -> int:
    with database(instance) as connection:
        row = connection.execute("SELECT count(*) FROM element_jobs WHERE state = 'done'").fetchone()
    return int(row[0])


Agents = Sequence[subprocess.Popen[bytes]]


def kill_first_agent(processes: Agents) -> None:
    processes[0].send_signal(signal.SIGKILL)


def run_request(
    instance: Instance,
    folder: Path,
    others: Sequence[Instance] = (),
    kill: Callable[[Agents], None] = kill_first_agent,
) -> RequestAudit:
    """Submit the request, call `kill` when a third of the jobs are done, and audit the result."""
    output_of(instance, "dataset", "add", "/toys/numbers", str(manifest(folder)), "--close")
    (folder / "request.toml").write_text(REQUEST)
    submitted = json.loads(output_of(instance, "request", "submit", str(folder / "request.toml"), "--json"))
    request = submitted["requests"][0]["request"]["id"]
    with agents([instance, *others], 3) as processes:
        until(lambda: done_jobs(instance) >= JOBS // 3, WHOLE, "a third of the jobs")
        kill(processes)

        def completed() -> bool:
            shown = json.loads(output_of(instance, "request", "show", str(request), "--json"))["request"]
            assert shown["state"] not in ("failed", "aborted"), shown
            return shown["state"] in ("completed", "closed-out", "announced")

        until(completed, WHOLE, "the end of the request")
    with database(instance) as connection:
        audit = audit_request(connection, request)
    assert set(audit.elements) == {"Done"}, audit
    assert set(audit.jobs) == {"done"}, audit
    assert audit.events == EVENTS
    merged = list((folder / "storage").rglob("*"))
    assert merged
    with database(instance) as connection:
        rows = connection.execute(
            "SELECT r.prefix, f.name FROM files f JOIN datasets d ON d.id = f.dataset_id"
            " JOIN replicas r ON r.block_id = f.block_id WHERE d.name = '/toys/sums'"
        ).fetchall()
    paths = {f"{prefix}/{name}" for prefix, name in rows}
    total = sum(sum(map(int, Path(path).read_text().split())) for path in paths)
    assert total == EVENTS, "the merged files have each event once"
    return audit


def policy_of_ten_sites(folder: Path, own: str, lease: int = 60) -> str:
    """The policy of the tests with ten more sites, which share one storage place."""
    storage = folder / "storage"
    storage.mkdir()
    return own + POLICY_OF_SITES.format(storage=storage, lease=lease) + REQUESTS


def test_three_agents_and_one_dies(tmp_path: Path) -> None:
    instance = Instance(tmp_path)
    instance.policy = policy_of_ten_sites(tmp_path, instance.policy)
    try:
        instance.start()
        instance.apply()
        run_request(instance, tmp_path)
    finally:
        instance.close()


def test_three_agents_and_one_dies_with_two_servers_on_postgresql(tmp_path: Path) -> None:
    url = postgres.server().empty()
    pair = Pair(tmp_path, postgres.server().tcp(url))
    pair.first.policy = policy_of_ten_sites(tmp_path, pair.first.policy)
    try:
        pair.start()
        run_request(pair.first, tmp_path, others=[pair.second])
    finally:
        pair.close()
        postgres.server().drop(url)


def test_one_process_of_each_kind_dies_with_two_servers_on_postgresql(tmp_path: Path) -> None:
    """A pilot, an agent, the server of another agent, then the server of the client: each is killed, one by one."""
    url = postgres.server().empty()
    pair = Pair(tmp_path, postgres.server().tcp(url))
    pair.first.policy = policy_of_ten_sites(tmp_path, pair.first.policy, lease=6)

    def kill(processes: Agents) -> None:
        def busy_pilot() -> int | None:
            with database(pair.first) as connection:
                rows = connection.execute(
                    "SELECT p.batch_id FROM pilots p JOIN jobs j ON j.pilot_id = p.id WHERE j.state = 'Running'"
                ).fetchall()
            guardians = [int(batch_id.partition(":")[0]) for (batch_id,) in rows]
            return next((pid for guardian in guardians for pid in children(guardian)), None)

        os.kill(until(busy_pilot, what="a pilot with a job"), signal.SIGKILL)
        processes[0].send_signal(signal.SIGKILL)
        for server, part in ((pair.second, JOBS // 2), (pair.first, 2 * JOBS // 3)):
            until(lambda part=part: done_jobs(pair.first) >= part, WHOLE, f"{part} jobs")
            server.kill_server()
            pair.launch(server)

    try:
        pair.start()
        run_request(pair.first, tmp_path, others=[pair.second], kill=kill)
    finally:
        pair.close()
        postgres.server().drop(url)
