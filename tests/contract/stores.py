"""The stores that every contract test runs on, and rows to begin with."""

from __future__ import annotations

import atexit
import json
import shutil
import tempfile
import threading
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from benchmarks.filled import count_jobs

from pilotage.core.ids import JobId, PilotId, QueueId, SubmissionId
from pilotage.core.jobs.states import FINAL
from pilotage.core.queues.identity import QueueIdentity
from pilotage.store.admin.upgrade import sqlite_engine, upgrade
from pilotage.store.engine.connection import Readers, WriterConnection
from pilotage.store.engine.sqlite import SqliteReaders, open_writer
from pilotage.store.postgresql.dsn import DatabaseAddress
from pilotage.store.tables import (
    chunks,
    instance,
    job_counts,
    jobs,
    listing,
    partitions,
    pilots,
    submissions,
)
from pilotage.store.tables.selections import JobSelection, Viewer
from pilotage.store.writer.transaction import Transaction
from pilotage.store.writer.writer import Writer
from tests.deadlines import PATIENCE
from tests.pilot_intent import pilot_intent
from tests.postgres import server


@dataclass
class Store:
    """One store as the server opens it. `engine` is for migrations only; `place` a path or an address."""

    name: str
    place: str
    engine: sa.Engine
    open_writer: Callable[[], WriterConnection]
    readers: Readers
    drop: Callable[[], None]


@cache
def migrated_database() -> Path:
    """A SQLite file with this version's schema, made once per process: migrations take longer than a test."""
    folder = Path(tempfile.mkdtemp(prefix="pilotage-tests-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    path = folder / "migrated.db"
    engine = sqlite_engine(path)
    upgrade(engine)
    engine.dispose()
    return path


def sqlite_store(folder: Path, migrated: bool) -> Store:
    folder.mkdir(exist_ok=True)
    path = folder / "store.db"
    if migrated:
        shutil.copy(migrated_database(), path)
    engine = sqlite_engine(path)
    return Store("sqlite", str(path), engine, lambda: open_writer(path), SqliteReaders(path), lambda: None)


def postgresql_store(folder: Path, migrated: bool) -> Store:
    database = server().migrated() if migrated else server().empty()
    address = DatabaseAddress.parse(server().url(database))
    return Store(
        "postgresql", server().url(database), address.engine(), address.open_writer, address.readers(),
        lambda: server().drop(database),
    )  # fmt: skip


STORES = {"sqlite": sqlite_store, "postgresql": postgresql_store}


IDENTITY = QueueIdentity("alice", "physics", sites=frozenset({"b", "a"}))


def recount(connection: Any) -> None:
    """Let counters, owners and final states follow from rows that a test has changed by hand."""
    final = ", ".join(f"'{state}'" for state in FINAL)
    connection.execute(
        "UPDATE jobs SET owner = coalesce((SELECT s.owner FROM submissions s WHERE s.id = submission_id), ''),"
        f" final_state = CASE WHEN state IN ({final}) THEN state ELSE '' END"
    )
    count_jobs(connection)


def count_rows(connection: Any) -> dict[tuple[int, int, str], int]:
    """The number of rows of jobs by submission, month of archived jobs, and state: all rows are read."""
    hot = connection.execute("SELECT submission_id, NULL, state FROM jobs").fetchall()
    old = connection.execute("SELECT submission_id, ended, state FROM history").fetchall()
    return Counter(
        (submission, 0 if ended is None else partitions.month_of(ended), state)
        for submission, ended, state in [*hot, *old]
    )


def assert_counted(connection: Any) -> None:
    """Counters with the changes that are not added yet are the number of rows, for submissions and owners."""
    rows = count_rows(connection)
    counted = Counter[tuple[int, int, str]]()
    not_added = f"SELECT submission_id, month, state, jobs FROM {job_counts.changes(connection)} AS c"
    for sql in ("SELECT submission_id, month, state, jobs FROM submission_counts", not_added):
        for *key, number in connection.execute(sql).fetchall():
            counted[tuple(key)] += number
    assert {key: number for key, number in counted.items() if number} == rows
    accounts = dict[int, tuple[str, str]]()
    for submission, owner, group in connection.execute("SELECT id, owner, grp FROM submissions").fetchall():
        accounts[submission] = owner, group
    of_owners = Counter[tuple[str, str, str]]()
    for (submission, _, state), number in rows.items():
        of_owners[*accounts[submission], state] += number
    for owner, group in {*accounts.values()}:
        told = listing.counts(connection, JobSelection(owner=owner, group=group), Viewer("", everything=True))
        assert told == {
            state: jobs for (*account, state), jobs in of_owners.items() if account == [owner, group]
        }
    states = connection.execute("SELECT state, final_state, owner, submission_id FROM jobs").fetchall()
    for state, final_state, owner, submission in states:
        assert final_state == (state if state in FINAL else "")
        assert owner == accounts[submission][0]


def fill(connection: Any) -> QueueId:
    """Ten waiting jobs, 1 to 10, of UserPriority 1 and 2 in turn; two pilots at two sites."""
    queue = submissions.insert_queue(connection, IDENTITY, 1.0)
    row = submissions.SubmissionRow(
        SubmissionId(1),
        "alice",
        "physics",
        "key",
        1.0,
        '{"executable": "true"}',
        "[]",
        ("x",),
        "n",
        "g",
        "User",
        queue,
        JobId(1),
        10,
        ("w",),
    )
    submissions.insert(connection, row)
    chunk = chunks.ChunkRow(row.id, 0, "digest", JobId(1), 10, 0, 1.0)
    chunks.insert(connection, chunk, json.dumps([[n] for n in range(10)]))
    for job in range(1, 11):
        submissions.insert_jobs(connection, row, JobId(job), [f"[{job}]"], 1 + job % 2, 0, 1.0)
    for number, site in enumerate(("here", "there")):
        pilots.insert(
            connection,
            pilot_intent(f"stamp {number}", secret_hash="s", idx=number, site=site, ce=f"ce {site}"),
        )
    instance.create(connection, "uuid", 5.0)
    return queue


def offer(connection: Any, pilot: int, take: int, at: float, *numbers: int) -> None:
    moves = [jobs.OfferedJobRow(PilotId(pilot), take, at, 7, JobId(n), 0) for n in numbers]
    assert jobs.save_offered(connection, moves) == set()
    row = pilots.by_id(connection, PilotId(pilot))
    assert row is not None
    has = json.dumps([*row.jobs, *numbers])
    pilots.save_answered_takes(connection, [pilots.AnsweredTake(take, row.only_owner, at, has, row.id)])


def note(number: int) -> Callable[[Transaction], int]:
    def request(tx: Transaction) -> int:
        submissions.insert_upload(tx.connection, "owner", str(number), number, 1.0)
        return number

    return request


def noted(connection: Any) -> list[int]:
    return sorted(row[0] for row in connection.execute("SELECT size FROM uploads"))


class Gate:
    """Holds the writer's thread, so that what is asked meanwhile becomes one group."""

    def __init__(self, writer: Writer) -> None:
        self.opened, self.reached = threading.Event(), threading.Event()
        writer.submit(self._wait, lambda result, error: None)
        assert self.reached.wait(PATIENCE)

    def _wait(self, tx: Transaction) -> None:
        self.reached.set()
        assert self.opened.wait(PATIENCE)
