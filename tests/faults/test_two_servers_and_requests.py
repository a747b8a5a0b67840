"""Requests beside jobs on two servers, while servers, agents, pilots and the database are killed again and again.

Each message to the database takes 1 ms longer. In the end each event of each request is in an accepted output, or its
request names it as failed. `PILOTAGE_SERVERS_SECONDS=3600` goes on for an hour, `PILOTAGE_SERVERS_SEED=7` in another
way.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import Any

import psycopg
import pytest

from pilotage.core.errors import PilotageError
from pilotage.wire.jobs import Selection
from tests import postgres
from tests.deadlines import PATIENCE
from tests.delayed_network import delayed
from tests.faults.ledger import read
from tests.faults.mask_audit import audit_request
from tests.faults.pair import Pair
from tests.instance import Instance, children, output_of, until

SECONDS = float(os.environ.get("PILOTAGE_SERVERS_SECONDS", "5"))
SEED = int(os.environ.get("PILOTAGE_SERVERS_SEED", "3"))
NETWORK_DELAY = 0.001
AT_ONCE = 2
"""Requests that are under way at the same time."""
BLOCKS, FILES, EVENTS_PER_FILE, EVENTS_PER_JOB = 3, 2, 100, 20
EVENTS = BLOCKS * FILES * EVENTS_PER_FILE
ENDED = ("completed", "closed-out", "announced", "failed", "aborted")
WORKS = 4.0 if SECONDS < 20 else 12.0
"""Seconds between two faults at most."""

pytestmark = [pytest.mark.slow, pytest.mark.timeout(10 * PATIENCE + 3 * SECONDS)]

POLICY = """
[requests]
agent_team = ""
agent_lease = 3.0
agent_period = 0.5
[retention]
hot = 5.0
"""
SITE = """
[sites.{site}]
storage = ["{storage}"]
[ces.{site}]
site = "{site}"
owners = "any"
processors = 1
memory = 2000
heartbeat = 0.5
lease = 6
idle = 3
"""
SITES = ("east", "west")
REQUEST = f"""
name = "sum-{{number}}"
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
dataset = "/toys/sum-{{number}}"

[merge]
min_size = "1 MB"
max_size = "2 MB"
"""


class Agents:
    """One agent at each server; a dead one is replaced."""

    def __init__(self, servers: list[Instance]) -> None:
        self._servers = servers
        self._processes: list[subprocess.Popen[bytes] | None] = [None for _ in servers]

    def keep_alive(self) -> None:
        for place, process in enumerate(self._processes):
            if process is None or process.poll() is not None:
                self._processes[place] = self._started(place)

    def _started(self, place: int) -> subprocess.Popen[bytes]:
        home = self._servers[place].home
        with (home / "agent.log").open("ab") as log:
            command = [sys.executable, "-m", "pilotage.main", "agent", "--team", "away"]
            command += ["--name", f"agent{place}", "--home", str(home)]
            return subprocess.Popen(command, stdout=log, stderr=log, stdin=subprocess.DEVNULL)

    def kill(self, place: int) -> None:
        process = self._processes[place]
        if process is not None:
            process.kill()
            process.wait()

    def end(self) -> None:
        for place in range(len(self._processes)):
            self.kill(place)


class Trial:
    """Two servers, their database, agents and pilots, and the faults that befall them."""

    def __init__(self, pair: Pair, database: postgres.Server, url: str, folder: Path) -> None:
        self.pair, self.database, self.url, self.folder = pair, database, url, folder
        self.rng = Random(SEED)
        self.agents = Agents(pair.servers)
        self.met: Counter[str] = Counter()
        self.numbers: set[int] = set()
        """Of requests that somebody has tried to submit."""
        self.jobs = 0
        self.refusals: list[str] = []
        """Errors of those who submitted requests."""

    def run(self) -> None:
        add_data(self.pair.first, self.folder)
        end, pause = time.monotonic() + SECONDS, threading.Event()
        faults = [self.kill_server] * 3 + [
            self.kill_both,
            self.stop_database,
            self.kill_agent,
            self.kill_pilot,
        ]
        while time.monotonic() < end or not self.met["kill_server"] or not self.met["stop_database"]:
            self.agents.keep_alive()
            self.submit()
            pause.wait(self.rng.uniform(0.5, WORKS))
            fault = self.rng.choice(faults)
            self.met[fault.__name__] += 1
            fault()
            self.revive()
        self.settle()

    # --- faults

    def kill_server(self) -> None:
        self.rng.choice(self.pair.servers).kill_server()

    def kill_both(self) -> None:
        for one in self.pair.servers:
            one.kill_server()

    def stop_database(self) -> None:
        """At once, as in a crash; it begins again with the recovery from its log."""
        self.database.stop()
        self.database.start()

    def kill_agent(self) -> None:
        self.agents.kill(self.rng.randrange(2))

    def kill_pilot(self) -> None:
        with psycopg.connect(self.url) as session:
            rows = session.execute("SELECT batch_id FROM pilots WHERE ended IS NULL AND batch_id LIKE '%:%'")
            guardians = [int(batch_id.partition(":")[0]) for (batch_id,) in rows]
        pilots = [pid for guardian in guardians for pid in children(guardian)]
        if pilots:
            with_luck = self.rng.choice(pilots)
            try:
                os.kill(with_luck, signal.SIGKILL)
            except ProcessLookupError:
                self.met["a pilot had ended"] += 1

    def revive(self) -> None:
        """Start servers that have ended, also one that was too slow for its heartbeat."""
        for one in self.pair.servers:
            assert one.process is not None
            if one.process.poll() is not None:
                self.pair.launch(one)

    # --- work

    def submit(self) -> None:
        """Requests and jobs, at a server that may die of it."""
        server = self.rng.choice(self.pair.servers)
        with psycopg.connect(self.url) as session:
            states = session.execute("SELECT state FROM requests").fetchall()
        if sum(state not in ENDED for (state,) in states) < AT_ONCE:
            number = len(self.numbers) + 1
            self.numbers.add(number)
            text = self.folder / f"request{number}.toml"
            text.write_text(REQUEST.format(number=number))
            done = server.cli("request", "submit", str(text))
            if done.returncode:
                self.refusals.append(done.stderr)
        try:
            sent = server.client().submit({"executable": "true"}, values=list(range(self.rng.choice([1, 5]))))
            self.jobs += sent.count
        except PilotageError:
            self.met["jobs refused"] += 1

    def settle(self) -> None:
        """Both servers live until everything has ended."""
        self.agents.keep_alive()
        within = 3 * PATIENCE + SECONDS

        def is_over() -> bool:
            self.revive()
            self.agents.keep_alive()
            with psycopg.connect(self.url) as session:
                states = {state for (state,) in session.execute("SELECT state FROM requests")}
            if not states <= set(ENDED):
                return False
            counts = self.pair.first.client().counts(Selection())
            return counts.total == counts.final

        until(is_over, within, "the end of all requests and jobs")

    # --- the audit

    def check(self) -> None:
        with psycopg.connect(self.url) as session:
            requests = session.execute("SELECT id, name, state FROM requests ORDER BY id").fetchall()
            told = [self.check_request(session, *request) for request in requests]
        ledger = read(self.pair.first.home, self.url)
        found = ledger.check()
        assert sum(found.values()) >= self.jobs
        checked = self.pair.first.cli("db", "check")
        assert checked.returncode == 0, checked.stdout
        assert told, self.refusals
        print(
            f"seed {SEED}, {SECONDS:.0f} s: {dict(self.met)}, {len(told)} requests, {found}, failed: {sum(told)}"
        )

    def check_request(self, session: Any, request: int, name: str, state: str) -> int:
        """Each event is in one accepted output, or named as failed; the number of failed ones."""
        audit = audit_request(session, request)
        rows = session.execute(
            "SELECT j.state, j.mask FROM element_jobs j JOIN elements e ON e.id = j.element_id"
            f" WHERE j.request_id = {request} AND e.step = 0"
        ).fetchall()
        failed = sum(
            count for job, mask in rows if job == "exhausted" for _, _, count, *_ in json.loads(mask)["files"]
        )
        facts = (request, state, audit, failed)
        assert {job for job, _ in rows} <= {"done", "exhausted"}, facts
        assert audit.events + failed == EVENTS, facts
        assert state == ("completed" if not failed else state), facts
        assert merged_events(session, f"/toys/{name}") == audit.events, facts
        return int(failed)


def merged_events(session: Any, dataset: str) -> int:
    """The sum of all events that the files of a data set have in them."""
    rows = session.execute(
        "SELECT r.prefix, f.name FROM files f JOIN datasets d ON d.id = f.dataset_id JOIN replicas r"
        " ON r.block_id = f.block_id WHERE d.name = %s",
        (dataset,),
    ).fetchall()
    paths = {f"{prefix}/{name}" for prefix, name in rows}
    return sum(sum(map(int, Path(path).read_text().split())) for path in paths)


def add_data(server: Instance, folder: Path) -> None:
    (folder / "data").mkdir()
    blocks = []
    for number in range(BLOCKS):
        names = [f"numbers{number}-{file}.txt" for file in range(FILES)]
        for name in names:
            (folder / "data" / name).write_text("data\n")
        files = [{"name": name, "size": 5, "events": EVENTS_PER_FILE} for name in names]
        replicas = {site: str(folder / "data") for site in SITES}
        blocks.append({"name": f"block{number}", "replicas": replicas, "files": files})
    path = folder / "numbers.json"
    path.write_text(json.dumps({"name": "/toys/numbers", "blocks": blocks}))
    output_of(server, "dataset", "add", "/toys/numbers", str(path), "--close")


@contextmanager
def trial_at(folder: Path) -> Iterator[Trial]:
    # Nobody else's database is stopped.
    database = postgres.Server()
    try:
        name = database.migrated()
        with delayed(database.port, NETWORK_DELAY) as port:
            url = database.tcp(name).replace(f":{database.port}/", f":{port}/")
            pair = Pair(folder, url)
            (folder / "storage").mkdir()
            sites = (SITE.format(site=site, storage=folder / "storage") for site in SITES)
            pair.first.policy += "".join(sites) + POLICY
            trial = Trial(pair, database, database.tcp(name), folder)
            try:
                pair.start(upgrade=False)
                yield trial
            finally:
                trial.agents.end()
                pair.close()
    finally:
        database.end()


def test_each_event_is_told_though_two_servers_and_their_database_die(tmp_path: Path) -> None:
    with trial_at(tmp_path) as trial:
        trial.run()
        for one in trial.pair.servers:
            one.stop_server()
        trial.check()
