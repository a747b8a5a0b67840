"""Everything at once against one server that is killed again and again; a model then checks the log and the rows.

`PILOTAGE_LOAD_SECONDS=60` loads it for so long (3 if not set).
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from random import Random

import psycopg
import pytest

from pilotage.client import Selection
from pilotage.core.errors import PilotageError
from pilotage.services.enrolment import secret_hash
from pilotage.store.upgrade import sqlite_engine, upgrade
from tests.faults.ledger import read
from tests.faults.paper_pilots import PROCESSORS, PaperPilot
from tests.instance import Instance, until
from tests.postgres import server

SECONDS = float(os.environ.get("PILOTAGE_LOAD_SECONDS", "3"))
PILOTS = 8
SECRETS = 400
MOST_WAITING = 1500

pytestmark = [pytest.mark.slow, pytest.mark.timeout(120 + 3 * SECONDS)]

LIMITS = """
[[limits]]
attribute = "group"
value = "home"
site = "here"
running = {all}
[[limits]]
attribute = "cpu_time"
value = "5000"
ce = "local"
running = {long}
"""


@pytest.fixture
def sqlite(tmp_path: Path) -> Iterator[Instance]:
    instance = Instance(tmp_path, **POLICY)
    instance.home.mkdir(mode=0o700)
    engine = sqlite_engine(instance.home / "pilotage.db")
    upgrade(engine)
    engine.dispose()
    yield instance
    instance.close()


@pytest.fixture
def postgresql(tmp_path: Path) -> Iterator[Instance]:
    database = server().migrated()
    instance = Instance(tmp_path, database_url=server().tcp(database), **POLICY)
    yield instance
    instance.close()
    server().drop(database)


POLICY = {"lease": 2, "heartbeat": 0.5}


class People:
    """One thread that submits, kills, reschedules and changes the limits."""

    def __init__(self, instance: Instance, stop: threading.Event) -> None:
        self.instance = instance
        self.client = instance.client()
        self.stop = stop
        self.rng = Random(11)
        self.accepted: set[int] = set()
        self.done: dict[str, int] = {}
        self.error: BaseException | None = None
        self.thread = threading.Thread(target=self.run)

    def run(self) -> None:
        verbs = [self.submit] * 4 + [self.submit_rows, self.kill, self.kill, self.reschedule, self.limit]
        try:
            while not self.stop.is_set():
                verb = self.rng.choice(verbs)
                try:
                    verb()
                except PilotageError as error:
                    self.note(f"{verb.__name__} failed: {type(error).__name__}")
                    self.stop.wait(0.1)
                else:
                    self.note(verb.__name__)
        except BaseException as error:
            self.error = error

    def note(self, what: str) -> None:
        self.done[what] = self.done.get(what, 0) + 1

    def description(self) -> dict[str, object]:
        rng = self.rng
        return {
            "executable": "true",
            "cpu_time": rng.choice([0, 0, 5000]),
            "processors": rng.choice([1, 1, 2]),
            "user_priority": rng.choice([0, 1, 1, 5]),
            "retries": rng.choice([0, 1]),
        }

    def submit(self) -> None:
        if self.client.counts(Selection(states=["Waiting"])).total > MOST_WAITING:
            self.stop.wait(0.05)
            return
        answer = self.client.submit(self.description(), values=range(self.rng.choice([1, 5, 60])))
        self.accepted.update(range(answer.first, answer.first + answer.count))

    def submit_rows(self) -> None:
        rows = [[number] for number in range(self.rng.choice([10, 300]))]
        key = f"rows {self.rng.getrandbits(40)}"
        while not self.stop.is_set():
            try:
                answer = self.client.submit_rows(self.description(), iter(rows), key=key)
            except PilotageError:
                self.note("submit_rows went on")
                self.stop.wait(0.2)
                continue
            assert answer.count == len(rows)
            return

    def kill(self) -> None:
        some = self.some()
        if some:
            self.client.kill(some, reason="load")

    def reschedule(self) -> None:
        ended = [one.id for one in self.client.jobs(Selection(states=["Failed", "Killed"]), page=100)]
        if ended:
            self.client.reschedule(self.rng.sample(ended, min(len(ended), 20)))

    def some(self) -> list[int]:
        """More of those that were submitted lately."""
        known = sorted(self.accepted)[-300:]
        return self.rng.sample(known, min(len(known), self.rng.choice([1, 10])))

    def limit(self) -> None:
        self.apply(self.rng.choice([5, 40, 100]), self.rng.choice([0, 2, 20]))

    def apply(self, all_: int, long: int) -> None:
        self.client.apply_policy(self.instance.policy + LIMITS.format(all=all_, long=long))


def write_pilots(instance: Instance, secrets: list[str]) -> None:
    """Their intents; of a batch system that is never to be asked about them, however long nobody calls home."""
    rows = [
        (
            f"paper {place}",
            secret_hash(secret),
            0,
            "Submitted",
            "here",
            "local",
            "generic",
            PROCESSORS,
            0,
            1e12,
        )
        for place, secret in enumerate(secrets)
    ]
    sql = (
        "INSERT INTO pilots (id, stamp, secret_hash, idx, state, site, ce, pilot_type, processors, memory, submitted)"
        " VALUES ((SELECT coalesce(max(id), 0) + 1 FROM pilots), ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
    )
    if instance.database_url:
        with psycopg.connect(instance.database_url) as session:
            session.cursor().executemany(sql.replace("?", "%s").encode(), rows)
    else:
        with contextlib.closing(sqlite3.connect(instance.home / "pilotage.db")) as connection, connection:
            connection.executemany(sql, rows)


@pytest.mark.parametrize("store", ["sqlite", "postgresql"])
def test_whatever_is_done_at_once_nothing_is_lost_doubled_or_beyond_its_limit(
    store: str, request: pytest.FixtureRequest
) -> None:
    instance: Instance = request.getfixturevalue(store)
    instance.policy += "offer_timeout = 1.0\n"
    secrets = [f"secret {number}" for number in range(SECRETS)]
    write_pilots(instance, secrets)
    instance.start()

    stop, stop_people, drain, up = (threading.Event() for _ in range(4))
    up.set()
    people = People(instance, stop_people)
    people.apply(40, 20)
    people.submit()
    pilots = [
        PaperPilot(instance.port, secrets[place::PILOTS], place, stop, up, drain) for place in range(PILOTS)
    ]
    threads = [people.thread, *(pilot.thread for pilot in pilots)]
    try:
        for thread in threads:
            thread.start()
        kills = kill_now_and_then(instance, up)
        stop_people.set()
        people.thread.join()
        # The server of now has not counted anything anew since it was started, and has to bring all to its end.
        for one in (people, *pilots):
            assert one.error is None, one.error
        people.apply(12, 3)
        drain.set()
        client = instance.client()
        until(lambda: unfinished(instance) == 0 or any(p.error for p in pilots), 60.0, "the end of all jobs")
    finally:
        stop_people.set()
        stop.set()
        up.set()
        for thread in threads:
            if thread.is_alive():
                thread.join()
    for one in (people, *pilots):
        assert one.error is None, one.error
    assert list(client.queues()) == []
    instance.stop_server()
    ledger = read(instance.home, instance.database_url)
    found = ledger.check()
    assert set(found) <= {"Done", "Failed", "Killed"}
    assert people.accepted <= ledger.jobs.keys()
    for pilot in pilots:
        for one in pilot.confirmed:
            assert one in ledger.tries, f"{one} was confirmed, and nothing is known of it"
        for job, epoch in pilot.accepted:
            outcome = ledger.tries[job, epoch][1]
            assert outcome in ("applied", "retried"), (job, epoch, outcome)
    met = sum((pilot.met for pilot in pilots), start=pilots[0].met.__class__())
    print(f"{store}: {kills} kills, {found}, {dict(met)}, {people.done}")
    assert kills >= 1
    for what in ("finish accepted", "finish superseded", "confirm accepted", "twice", "unanswered"):
        assert met[what], f"no {what} among {met}"
    checked = instance.cli("db", "check")
    assert checked.returncode == 0, checked.stdout


def kill_now_and_then(instance: Instance, up: threading.Event) -> int:
    """For SECONDS; the number of times. Each server is left to work for a moment, and the last one is alive."""
    rng, kills, left = Random(5), 0, SECONDS
    nothing = threading.Event()
    while left > 0:
        pause = min(left, rng.uniform(0.5, 2.0))
        nothing.wait(pause)
        left -= pause
        if left <= 0 and kills:
            return kills
        up.clear()
        instance.kill_server()
        kills += 1
        killed_in_between(instance)
        begun = time.monotonic()
        instance.start()
        up.set()
        nothing.wait(min(0.3, time.monotonic() - begun))
    return kills


def killed_in_between(instance: Instance) -> None:
    """What the dead server has committed is whole."""
    read(instance.home, instance.database_url).check()


def unfinished(instance: Instance) -> int:
    counts = instance.client().counts(Selection())
    return counts.total - counts.final


def test_the_index_counts_what_waits_while_it_is_loaded(sqlite: Instance) -> None:
    """Asked in between, when pilots and people hold their breath."""
    instance = sqlite
    secrets = [f"secret {number}" for number in range(SECRETS)]
    write_pilots(instance, secrets)
    instance.start()
    instance.apply()
    rng = Random(3)
    for turn in range(3):
        stop, up, drain = threading.Event(), threading.Event(), threading.Event()
        up.set()
        people = People(instance, stop)
        people.rng = Random(turn)
        pilots = [
            PaperPilot(instance.port, secrets[place + 4 * turn :: 12], rng.randrange(100), stop, up, drain)
            for place in range(4)
        ]
        people.submit()
        for one in (people, *pilots):
            one.thread.start()
        stop.wait(min(1.5, SECONDS / 3))
        stop.set()
        for one in (people, *pilots):
            one.thread.join()
            assert one.error is None, one.error
        until(lambda: told(instance) == read(instance.home).waiting(), 15.0, "the same counts")
    assert told(instance)


def told(instance: Instance) -> dict[int, int]:
    return {queue.id: queue.waiting for queue in instance.client().queues()}
