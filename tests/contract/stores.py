"""The stores that every contract test runs on, and rows to begin with."""

from __future__ import annotations

import atexit
import json
import shutil
import tempfile
import threading
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from pilotage.core.ids import JobId, PilotId, QueueId, SubmissionId
from pilotage.core.queues.identity import QueueIdentity
from pilotage.store.admin.upgrade import sqlite_engine, upgrade
from pilotage.store.engine.connection import Readers, WriterConnection
from pilotage.store.engine.sqlite import SqliteReaders, open_writer
from pilotage.store.postgresql.dsn import DatabaseAddress
from pilotage.store.tables import chunks, instance, jobs, pilots, submissions
from pilotage.store.writer.transaction import Transaction
from pilotage.store.writer.writer import Writer
from tests.postgres import server

DEADLINE = 90.0


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
            stamp=f"stamp {number}",
            secret_hash="s",
            idx=number,
            site=site,
            ce=f"ce {site}",
            only_owner=None,
            pilot_type="generic",
            processors=1,
            memory=0,
            now=1.0,
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
        assert self.reached.wait(DEADLINE)

    def _wait(self, tx: Transaction) -> None:
        self.reached.set()
        assert self.opened.wait(DEADLINE)
