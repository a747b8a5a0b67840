"""Everything at once against servers that are killed again and again; a model then checks the log and the rows.

One server on SQLite, where there can be no second; two on PostgreSQL, and clients that go from one to the other.
`PILOTAGE_LOAD_SECONDS=60` loads them for so long, `PILOTAGE_LOAD_SEED=7` in another way.
"""

from __future__ import annotations

import contextlib
import getpass
import os
import sqlite3
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from random import Random
from typing import Any

import psycopg
import pytest

from pilotage.client import Client, Selection, row_upload
from pilotage.core.errors import PilotageError
from pilotage.services.pilots.enrolment import secret_hash
from pilotage.store.admin.upgrade import sqlite_engine, upgrade
from pilotage.wire import submissions
from tests.deadlines import PATIENCE
from tests.faults.answers import people_heard_the_truth, pilots_heard_the_truth
from tests.faults.ledger import Ledger, read
from tests.faults.pair import Pair, Reigns
from tests.faults.paper_pilots import PROCESSORS, PaperPilot
from tests.faults.people import Person
from tests.instance import Instance, until
from tests.postgres import server

SECONDS = float(os.environ.get("PILOTAGE_LOAD_SECONDS", "2"))
SEED = int(os.environ.get("PILOTAGE_LOAD_SEED", "5"))
PILOTS = 8
SECRETS = 1000 + int(20 * SECONDS)
MOST_WAITING = int(min(1500, 150 * SECONDS))
WORKS = 2.0 if SECONDS < 20 else 5.0
"""Seconds for which servers are left to work at most."""
DRAINED = 2 * PATIENCE + SECONDS
EXPECTED = ("finish accepted", "finish superseded", "confirm accepted", "twice", "unanswered")
"""Events that pilots of a load have met before it ends."""

pytestmark = [pytest.mark.slow, pytest.mark.timeout(5 * PATIENCE + 4 * SECONDS)]


class Load:
    """Pilots, people, and the servers that they load."""

    def __init__(
        self, servers: Sequence[Instance], launch: Callable[[Instance], None], url: str = ""
    ) -> None:
        self.servers, self.launch, self.url = servers, launch, url
        self.rng = Random(SEED)
        self.kills = 0
        self.reigns = Reigns(url) if url else None
        self.stop, self.stop_people, self.drain = (threading.Event() for _ in range(3))
        self.clients: list[Client] = []
        administrator = getpass.getuser()
        self.administrator = self.person((self.home / "token").read_text().strip(), 1, administrator)
        self.administrator.apply(40, 20, 20)
        alice = self.person(self.administrator.client.create_token("alice").token, 2)
        self.people = [self.administrator, alice]
        secrets = [f"secret {number}" for number in range(SECRETS)]
        write_pilots(self.home, url, secrets)
        ports = [one.port for one in servers]
        self.pilots = [
            PaperPilot(ports, secrets[place::PILOTS], SEED * 100 + place, self.stop, self.drain)
            for place in range(PILOTS)
        ]

    @property
    def home(self) -> Path:
        return self.servers[0].home

    def person(self, token: str, seed: int, administrator: str = "") -> Person:
        urls = [f"http://127.0.0.1:{one.port}" for one in self.servers]
        clients = [Client(url, token, patience=0.5, timeout=PATIENCE) for url in urls]
        self.clients += clients
        return Person(clients, MOST_WAITING, self.stop_people, SEED * 10 + seed, administrator)

    def run(self) -> None:
        """Until every job has ended."""
        with self.reigns or contextlib.nullcontext():
            everybody: list[Any] = [*self.people, *self.pilots]
            try:
                for one in everybody:
                    one.thread.start()
                self.kill_now_and_then()
                # A slow machine needs longer for it.
                until(lambda: not self.unmet() or self.somebody_failed(), what="all expected events")
                self.stop_people.set()
                for person in self.people:
                    person.thread.join()
                self.nobody_failed()
                # The servers of now have to bring all to its end.
                until(self.is_narrowed, what="the last policy")
                self.drain.set()
                try:
                    until(lambda: self.over() or self.somebody_failed(), DRAINED, "the end of all jobs")
                except AssertionError as late:
                    raise AssertionError(f"{late}: {self.what_is_left()}") from None
            finally:
                self.stop_people.set()
                self.stop.set()
                for one in everybody:
                    if one.thread.is_alive():
                        one.thread.join()
                for client in self.clients:
                    client.close()
        self.nobody_failed()

    def kill_now_and_then(self) -> None:
        """For SECONDS: one server or all; each is left to work for a moment, and in the end all are alive."""
        rng, end, nothing = self.rng, time.monotonic() + SECONDS, threading.Event()
        while (left := end - time.monotonic()) > 0 or not self.kills:
            nothing.wait(min(max(left, 0.5), rng.uniform(0.5, WORKS)))
            if (time.monotonic() > end and self.kills) or self.somebody_failed():
                return
            victims = [rng.choice(self.servers)] if rng.random() < 0.8 else self.servers
            for victim in victims:
                victim.kill_server()
            self.kills += 1
            if self.kills % 4 == 1:
                # What the dead have committed is whole.
                self.read().check()
            nothing.wait(rng.uniform(0.0, 0.5))
            for victim in victims:
                self.launch(victim)

    def read(self) -> Ledger:
        return read(self.home, self.url, dict(self.reigns.superseded) if self.reigns else None)

    def what_is_left(self) -> str:
        client = self.servers[0].client()
        waiting = [
            (one.owner, one.waiting, one.cpu_time, client.why_queue(one.id)) for one in client.queues()
        ]
        return (
            f"{client.counts(Selection()).states}, {waiting}, pilots: {[one.left() for one in self.pilots]}"
        )

    def over(self) -> bool:
        counts = self.servers[0].client().counts(Selection())
        return counts.total == counts.final

    def is_narrowed(self) -> bool:
        """Apply the last policy. A server that has just started may be too busy for it."""
        try:
            self.administrator.apply(12, 6, 3)
        except PilotageError:
            return False
        return True

    def unmet(self) -> list[str]:
        """The expected events that no pilot has met yet."""
        expected = (*EXPECTED, "moved") if len(self.servers) > 1 else EXPECTED
        return [event for event in expected if not any(pilot.met[event] for pilot in self.pilots)]

    def somebody_failed(self) -> bool:
        return any(person.error for person in self.people) or any(pilot.error for pilot in self.pilots)

    def nobody_failed(self) -> None:
        for error in (*(person.error for person in self.people), *(pilot.error for pilot in self.pilots)):
            if error is not None:
                raise error

    def check(self) -> None:
        """The servers have ended."""
        ledger = self.read()
        found = ledger.check()
        assert set(found) <= {"Done", "Failed", "Killed", "Deleted"}
        ledger.nobody_is_bound_for_nothing()
        pilots_heard_the_truth(ledger, (said for pilot in self.pilots for said in pilot.heard))
        people_heard_the_truth(ledger, self.people)
        met = sum((one.met for one in self.pilots), start=Counter[str]())
        done = sum((one.done for one in self.people), start=Counter[str]())
        print(
            f"{len(self.servers)} servers, seed {SEED}: {self.kills} kills, {found}, {dict(met)}, {dict(done)}"
        )
        assert self.kills >= 1
        assert not self.unmet()
        checked = self.servers[0].cli("db", "check")
        assert checked.returncode == 0, checked.stdout


def write_pilots(home: Path, database_url: str, secrets: list[str]) -> None:
    """Their intents; on another host, of whose processes nothing is known, however long nobody calls home."""
    rows = [
        (
            f"paper {place}",
            secret_hash(secret),
            0,
            "Submitted",
            *(("here", "local") if place % 3 else ("there", "other")),
            "generic",
            PROCESSORS,
            0,
            0.0,
            "@elsewhere",
        )
        for place, secret in enumerate(secrets)
    ]
    sql = (
        "INSERT INTO pilots (id, stamp, secret_hash, idx, state, site, ce, pilot_type, processors, memory, submitted,"
        " batch_id) VALUES ((SELECT coalesce(max(id), 0) + 1 FROM pilots), ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
    )
    if database_url:
        with psycopg.connect(database_url) as session:
            session.cursor().executemany(sql.replace("?", "%s").encode(), rows)
    else:
        with (
            contextlib.closing(sqlite3.connect(home / "pilotage.db", timeout=PATIENCE)) as connection,
            connection,
        ):
            connection.executemany(sql, rows)


@pytest.fixture(autouse=True)
def short_chunks_and_little_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that many a submission in chunks is cut off, and goes on at the other server."""
    monkeypatch.setattr(submissions, "MAX_CHUNK_ROWS", 40)
    monkeypatch.setattr(row_upload, "PATIENCE", 0.5)


@pytest.fixture
def instance(tmp_path: Path) -> Iterator[Instance]:
    one = Instance(tmp_path)
    one.home.mkdir(mode=0o700)
    engine = sqlite_engine(one.home / "pilotage.db")
    upgrade(engine)
    engine.dispose()
    yield one
    one.close()


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[Pair]:
    database = server().migrated()
    made = Pair(tmp_path, server().tcp(database))
    yield made
    made.close()
    server().drop(database)


def test_one_killed_server_under_load_loses_and_doubles_nothing(instance: Instance) -> None:
    instance.start()
    instance.apply()
    load = Load([instance], Instance.start)
    load.run()
    assert list(instance.client().queues()) == []
    instance.stop_server()
    load.check()


def test_two_killed_servers_under_load_lose_and_double_nothing(pair: Pair) -> None:
    pair.start(upgrade=False)
    load = Load(pair.servers, pair.launch, pair.url)
    load.run()
    for one in pair.servers:
        until(lambda one=one: list(one.client().queues()) == [], what="no waiting jobs in any memory")
    for one in pair.servers:
        one.stop_server()
    load.check()


def test_the_index_counts_waiting_jobs_while_it_is_loaded(instance: Instance) -> None:
    """Asked in between, when pilots and people hold their breath."""
    instance.start()
    instance.apply()
    load = Load([instance], Instance.start)
    for turn in range(2):
        stop = threading.Event()
        everybody: list[PaperPilot | Person] = []
        for place in range(4):
            secrets = load.pilots[4 * turn + place].secrets
            everybody.append(PaperPilot([instance.port], secrets, SEED + place, stop, load.drain))
        everybody.append(Person(load.administrator.clients, MOST_WAITING, stop, SEED + turn))
        for one in everybody:
            one.thread.start()
        stop.wait(min(1.5, SECONDS / 2))
        stop.set()
        for one in everybody:
            one.thread.join()
            if one.error is not None:
                raise one.error
        # Whatever the pilots have left over, this waits.
        instance.client().submit({"executable": "true", "tags": ["nowhere"]}, values=range(3))
        until(lambda: told(instance) == read(instance.home).waiting(), what="the same counts")
    assert sum(told(instance).values()) >= 6
    for client in load.clients:
        client.close()


def told(instance: Instance) -> dict[int, int]:
    return {queue.id: queue.waiting for queue in instance.client().queues()}
