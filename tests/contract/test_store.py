"""What the services rely on in a store. A second store (PostgreSQL) becomes one more parameter of `store`."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import sqlalchemy as sa
from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext

from pilotage.core.errors import Conflict, Overloaded
from pilotage.core.ids import JobId, PilotId, QueueId, SubmissionId
from pilotage.core.jobs.states import JobState
from pilotage.core.queues.identity import QueueIdentity
from pilotage.core.shares.use import Bucket, Ledger
from pilotage.store import attempts, copies, events, instance, jobs, pilots, submissions, use
from pilotage.store.events import EventBatch, EventIds
from pilotage.store.schema import metadata
from pilotage.store.sqlite import Readers, integrity, open_writer
from pilotage.store.upgrade import current_revision, head_revision, sqlite_engine, upgrade
from pilotage.store.writer import GROUP, Transaction, Writer

DEADLINE = 20.0


@dataclass
class Store:
    """One store as the server opens it. `engine` is for migrations only."""

    path: Path
    engine: sa.Engine
    open_writer: Callable[[], Any]
    readers: Readers


def sqlite_store(folder: Path) -> Store:
    path = folder / "store.db"
    return Store(path, sqlite_engine(path), lambda: open_writer(path), Readers(path))


STORES = {"sqlite": sqlite_store}


@pytest.fixture(params=STORES)
def unmade(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    store = STORES[request.param](tmp_path)
    yield store
    store.readers.close()
    store.engine.dispose()


@pytest.fixture
def store(unmade: Store) -> Store:
    upgrade(unmade.engine)
    return unmade


@pytest.fixture
def connection(store: Store) -> Iterator[Any]:
    opened = store.open_writer()
    yield opened
    opened.close()


@pytest.fixture
def writer(connection: Any) -> Iterator[Writer]:
    made = Writer(connection, waiting=8)
    made.start()
    yield made
    made.stop()


# --- the schema


def test_migrations_lead_to_the_schema(store: Store) -> None:
    with store.engine.connect() as connection:
        context = MigrationContext.configure(connection, opts={"compare_type": True})
        assert compare_metadata(context, metadata) == []
    assert current_revision(store.engine) == head_revision()


def test_migrations_write_the_tables_as_the_schema_would(store: Store, tmp_path: Path) -> None:
    """To the letter, but for the order: partial indexes and ids that are never given twice escape a comparison."""
    direct = sqlite_engine(tmp_path / "direct.db")
    metadata.create_all(direct)

    def tables(engine: sa.Engine) -> dict[str, set[str]]:
        with engine.connect() as connection:
            sql = sa.text(
                "SELECT name, sql FROM sqlite_master WHERE sql IS NOT NULL AND name NOT LIKE 'alembic%'"
            )
            return {
                name: set(sql.replace("(", ",").replace(")", ",").replace("\n", "").split(","))
                for name, sql in (
                    (row[0], " ".join(row[1].replace("\t", " ").split())) for row in connection.execute(sql)
                )
            }

    def plain(parts: set[str]) -> set[str]:
        return {" ".join(part.replace('"', "").split()) for part in parts} - {""}

    made, meant = tables(store.engine), tables(direct)
    direct.dispose()
    assert made.keys() == meant.keys()
    for name in meant:
        assert plain(made[name]) == plain(meant[name]), name


def test_upgrading_a_filled_database_again_changes_nothing(store: Store, connection: Any) -> None:
    fill(connection)
    before = [list(connection.execute(f"SELECT * FROM {table}")) for table in metadata.tables]
    assert any(before)
    upgrade(store.engine)
    assert [list(connection.execute(f"SELECT * FROM {table}")) for table in metadata.tables] == before


def test_tries_of_before_the_shares_get_an_owner_and_a_site(unmade: Store) -> None:
    upgrade(unmade.engine, "0001")
    with unmade.engine.begin() as connection:
        for sql in FILLED_0001:
            connection.execute(sa.text(sql))
    upgrade(unmade.engine)
    with unmade.engine.connect() as connection:
        sql = "SELECT job_id, owner, grp, site, cpu_power, ended, wall FROM attempts ORDER BY job_id"
        assert [tuple(row) for row in connection.execute(sa.text(sql))] == [
            (1, "alice", "physics", "here", 1.0, 60.0, 40.0),
            (2, "alice", "physics", "", 1.0, None, 0.0),
            (3, "", "", "here", 1.0, 60.0, 0.0),
        ]
        row = connection.execute(sa.text("SELECT uuid, use_as_of FROM instance")).one()
        assert tuple(row) == ("u", None)
    assert current_revision(unmade.engine) == head_revision()


FILLED_0001 = (
    "INSERT INTO instance (id, uuid, incarnation, alive_at) VALUES (1, 'u', 1, 100.0)",
    "INSERT INTO submissions (id, owner, grp, submitted, description, inputs, names, job_name, job_group, job_type,"
    " queue_id, first_job, count, warnings)"
    " VALUES (1, 'alice', 'physics', 1.0, '{}', '[]', '[]', '', '', 'User', 1, 1, 2, '[]')",
    *(
        f"INSERT INTO jobs (id, submission_id, queue_id, state, user_priority, submitted)"
        f" VALUES ({job}, 1, 1, 'Running', 1, 1.0)"
        for job in (1, 2)
    ),
    "INSERT INTO pilots (id, stamp, secret_hash, idx, state, site, ce, pilot_type, processors, memory, submitted)"
    " VALUES (7, 's', 'h', 0, 'Running', 'here', 'local', 'generic', 1, 0, 1.0)",
    # A try that has ended, one that runs with a pilot that is gone, one of a job that is gone.
    "INSERT INTO attempts (job_id, epoch, attempt, pilot_id, started, ended, wall) VALUES (1, 1, 1, 7, 5.0, 60.0, 40)",
    "INSERT INTO attempts (job_id, epoch, attempt, pilot_id, started) VALUES (2, 1, 1, 8, 5.0)",
    "INSERT INTO attempts (job_id, epoch, attempt, pilot_id, started, ended) VALUES (3, 1, 1, 7, 5.0, 60.0)",
)
"""Rows of the first schema."""


def test_a_newer_schema_is_refused_and_left_alone(store: Store) -> None:
    with store.engine.begin() as connection:
        connection.execute(sa.text("UPDATE alembic_version SET version_num = '9999'"))
    with pytest.raises(Conflict, match="9999"):
        upgrade(store.engine)
    assert current_revision(store.engine) == "9999"


# --- the writer


def note(number: int) -> Callable[[Transaction], int]:
    def request(tx: Transaction) -> int:
        submissions.note_upload(tx.connection, "owner", str(number), number, 1.0)
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


def test_an_answer_comes_after_the_commit_that_holds_it(writer: Writer, store: Store) -> None:
    gate = Gate(writer)
    seen: list[list[int]] = []
    done = threading.Event()

    def reply(result: int, error: BaseException | None) -> None:
        # Another connection sees only what is committed: all of the group, whichever answer comes first.
        seen.append(noted(store.readers.connection()))
        if result == 4:
            done.set()

    for number in range(5):
        writer.submit(note(number), reply)
    assert noted(store.readers.connection()) == []
    groups = writer.groups
    gate.opened.set()
    assert done.wait(DEADLINE)
    assert seen == [[0, 1, 2, 3, 4]] * 5
    assert writer.groups == groups + 1


def test_one_request_that_fails_fails_alone(writer: Writer, store: Store) -> None:
    undone: list[str] = []

    def fails(tx: Transaction) -> None:
        note(99)(tx)
        tx.on_rollback(lambda: undone.append("first"))
        tx.on_rollback(lambda: undone.append("second"))
        raise ValueError("mine")

    gate = Gate(writer)
    answers: list[Any] = []
    done = threading.Event()

    def reply(result: Any, error: BaseException | None) -> None:
        answers.append(error or result)
        if len(answers) == 5:
            done.set()

    for request in (note(1), note(2), fails, note(3), note(4)):
        writer.submit(request, reply)
    gate.opened.set()
    assert done.wait(DEADLINE)
    assert isinstance(answers[2], ValueError)
    assert answers[:2] + answers[3:] == [1, 2, 3, 4]
    assert noted(store.readers.connection()) == [1, 2, 3, 4]
    # Once with the group, once alone; newest first.
    assert undone == ["second", "first"] * 2
    assert writer.replays == 1


def test_nothing_is_undone_of_what_was_committed(writer: Writer) -> None:
    undone: list[int] = []
    writer.call(lambda tx: tx.on_rollback(lambda: undone.append(1)))
    with pytest.raises(ZeroDivisionError):
        writer.call(lambda tx: 1 // 0)
    assert undone == []


def test_an_undo_sees_the_rows_as_before(writer: Writer) -> None:
    seen: list[list[int]] = []

    def fails(tx: Transaction) -> None:
        tx.on_rollback(lambda: seen.append(noted(tx.connection)))
        note(2)(tx)
        raise ValueError("mine")

    writer.call(note(1))
    with pytest.raises(ValueError, match="mine"):
        writer.call(fails)
    assert seen == [[1]]


def test_a_full_queue_refuses_instead_of_piling_up(writer: Writer, store: Store) -> None:
    gate, done = Gate(writer), threading.Event()
    for number in range(8):
        writer.submit(note(number), lambda result, error: done.set() if result == 7 else None)
    with pytest.raises(Overloaded) as refused:
        writer.submit(note(99), lambda result, error: None)
    assert refused.value.retry_after > 0
    gate.opened.set()
    assert done.wait(DEADLINE)
    writer.call(note(8))
    assert noted(store.readers.connection()) == list(range(9))


def test_a_writer_that_stops_does_what_waits_and_refuses_the_rest(connection: Any, store: Store) -> None:
    writer = Writer(connection)
    writer.start()
    gate = Gate(writer)
    for number in range(GROUP + 5):
        writer.submit(note(number), lambda result, error: None)
    stopping = threading.Thread(target=writer.stop)
    stopping.start()
    gate.opened.set()
    stopping.join(DEADLINE)
    assert not stopping.is_alive()
    assert noted(connection) == list(range(GROUP + 5))
    with pytest.raises(Overloaded):
        writer.call(note(1000))


def test_the_event_loop_is_answered_alike(writer: Writer) -> None:
    async def ask() -> list[Any]:
        wanted = [writer.acall(note(1)), writer.acall(lambda tx: 1 // 0), writer.acall(note(2))]
        return await asyncio.gather(*wanted, return_exceptions=True)

    one, error, two = asyncio.run(ask())
    assert (one, two) == (1, 2)
    assert isinstance(error, ZeroDivisionError)


def test_nothing_acknowledged_is_lost_when_the_process_is_killed(store: Store) -> None:
    chance, said, first = random.Random(11), set[int](), 1
    program = Path(__file__).with_name("killed_writer.py")
    for _ in range(12):
        command = [sys.executable, str(program), str(store.path), str(first)]
        process = subprocess.Popen(command, stdout=subprocess.PIPE)
        assert process.stdout is not None
        try:
            for _ in range(chance.randrange(1, 60)):
                said.add(int(process.stdout.readline()))
        finally:
            os.kill(process.pid, signal.SIGKILL)
            rest = process.stdout.read()
            process.stdout.close()
            process.wait(DEADLINE)
        said.update(int(line) for line in rest.splitlines(keepends=True) if line.endswith(b"\n"))
        connection = store.open_writer()
        assert integrity(connection) == "ok"
        assert said <= set(noted(connection))
        connection.close()
        first += 10**6
    assert len(said) > 100


# --- readers


def test_readers_see_what_is_committed_and_cannot_write(store: Store, writer: Writer) -> None:
    reader = store.readers.connection()
    assert store.readers.connection() is reader
    assert noted(reader) == []
    writer.call(note(1))
    assert noted(reader) == [1]
    for sql in ("DELETE FROM uploads", "CREATE TABLE other (x)", "PRAGMA user_version = 5"):
        with pytest.raises(sqlite3.OperationalError):
            reader.execute(sql)
    assert noted(reader) == [1]


def test_each_thread_has_a_reader_of_its_own(store: Store) -> None:
    found: list[Any] = []
    thread = threading.Thread(target=lambda: found.append(store.readers.connection()))
    thread.start()
    thread.join(DEADLINE)
    assert found[0] is not store.readers.connection()


def test_a_backup_is_whole_while_the_writer_writes(store: Store, writer: Writer, tmp_path: Path) -> None:
    for number in range(50):
        writer.call(note(number))
    copy = tmp_path / "copy.db"
    copies.take(store.path, copy)
    writer.call(note(50))
    kept = sqlite3.connect(copy)
    assert integrity(kept) == "ok"
    assert noted(kept) == list(range(50))
    kept.close()


# --- jobs, queues, pilots, events

IDENTITY = QueueIdentity("alice", "physics", sites=frozenset({"b", "a"}))


def fill(connection: Any) -> QueueId:
    """Ten waiting jobs, 1 to 10, of UserPriority 1 and 2 in turn; two pilots at two sites."""
    queue = submissions.insert_queue(connection, IDENTITY, 1.0)
    row = submissions.Submission(
        SubmissionId(1),
        "alice",
        "physics",
        "key",
        1.0,
        "{}",
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
    submissions.insert(connection, row, [[n] for n in range(10)])
    for job in range(1, 11):
        submissions.insert_jobs(connection, row, JobId(job), [f"[{job}]"], 1 + job % 2, 0)
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
    jobs.save_offered(connection, [jobs.Offered(PilotId(pilot), take, at, 7, JobId(n)) for n in numbers])


def test_a_submission_is_read_as_it_was_written(connection: Any) -> None:
    queue = fill(connection)
    found = submissions.by_id(connection, SubmissionId(1))
    assert found == submissions.by_key(connection, "alice", "key")
    assert (found.names, found.warnings, found.queue, found.count) == (("x",), ("w",), queue, 10)
    assert submissions.by_key(connection, "bob", "key") is None
    assert submissions.pending_rows(connection, found.id) == [[n] for n in range(10)]
    assert submissions.unfinished(connection) == [found.id]
    assert submissions.jobs_made(connection, found) == 10
    assert submissions.last_ids(connection) == (1, 10)
    submissions.all_made(connection, found.id)
    assert submissions.pending_rows(connection, found.id) is None
    assert submissions.unfinished(connection) == []


def test_heads_are_the_lowest_waiting_ids_of_one_priority(connection: Any) -> None:
    queue = fill(connection)
    assert jobs.heads(connection, queue, 1, 0, 3) == [2, 4, 6]
    assert jobs.heads(connection, queue, 1, 6, 9) == [8, 10]
    assert jobs.heads(connection, queue, 2, 0, 9) == [1, 3, 5, 7, 9]
    assert jobs.heads(connection, QueueId(99), 2, 0, 9) == []
    offer(connection, 1, 1, 2.0, 4)
    assert jobs.heads(connection, queue, 1, 0, 3) == [2, 6, 8]
    assert jobs.waiting_counts(connection) == {queue: {1: 4, 2: 5}}
    assert jobs.waiting_counts_of(connection, queue) == {1: 4, 2: 5}
    assert submissions.waiting_of_owner(connection, "alice") == 9
    assert submissions.waiting_of_owner(connection, "bob") == 0


def test_a_take_is_rebuilt_of_what_is_still_offered(connection: Any) -> None:
    fill(connection)
    offer(connection, 1, 5, 2.0, 3, 1, 2)
    offer(connection, 1, 6, 2.0, 4)
    offer(connection, 2, 5, 2.0, 5)
    assert [row.id for row in jobs.of_take(connection, PilotId(1), 5)] == [1, 2, 3]
    jobs.save_held(connection, [jobs.Held(3.0, 8, JobId(2))])
    rows = jobs.of_take(connection, PilotId(1), 5)
    assert [(row.id, row.epoch, row.state, row.parameters) for row in rows] == [
        (1, 1, JobState.MATCHED, "[1]"),
        (3, 1, JobState.MATCHED, "[3]"),
    ]
    assert [row.id for row in jobs.of_pilot(connection, PilotId(1))] == [1, 2, 3, 4]
    assert jobs.has_any(connection, PilotId(1))
    assert not jobs.has_any(connection, PilotId(9))
    assert jobs.by_ids(connection, [2, 99]).keys() == {2}
    assert jobs.by_ids(connection, [2])[2].attempt == 1


def test_held_counts_are_by_queue_site_and_ce(connection: Any) -> None:
    queue = fill(connection)
    offer(connection, 1, 1, 2.0, 1, 2, 3)
    offer(connection, 2, 1, 2.0, 4)
    jobs.save_held(connection, [jobs.Held(3.0, 8, JobId(2))])
    ended = jobs.Ended(JobState.DONE, 0, 0, "", 0, 4.0, 9, JobId(3))
    jobs.save_ended(connection, [ended])
    assert sorted(jobs.held_counts(connection)) == [
        (queue, "here", "ce here", 2),
        (queue, "there", "ce there", 1),
    ]


def test_what_is_due_and_what_has_lapsed(connection: Any) -> None:
    fill(connection)
    later = [
        jobs.Freed(JobState.RESCHEDULED, at, 1, 0, "why", 8, JobId(job)) for job, at in ((1, 10.0), (2, 20.0))
    ]
    jobs.save_freed(connection, later)
    assert [row.id for row in jobs.due(connection, 9.9, 9)] == []
    assert [row.id for row in jobs.due(connection, 10.0, 9)] == [1]
    assert {row.id for row in jobs.due(connection, 50.0, 9)} == {1, 2}
    assert len(jobs.due(connection, 50.0, 1)) == 1
    jobs.save_freed(connection, [jobs.Freed(JobState.WAITING, None, 1, 0, "", 9, JobId(1))])
    assert [row.id for row in jobs.due(connection, 50.0, 9)] == [2]
    offer(connection, 1, 1, 100.0, 3)
    offer(connection, 1, 2, 101.0, 4)
    assert [row.id for row in jobs.lapsed_offers(connection, 100.0, 9)] == []
    assert [row.id for row in jobs.lapsed_offers(connection, 101.0, 9)] == [3]
    jobs.save_held(connection, [jobs.Held(102.0, 8, JobId(3))])
    assert [row.id for row in jobs.lapsed_offers(connection, 500.0, 9)] == [4]


def test_a_jobs_history_is_a_chain_through_shared_events(connection: Any) -> None:
    fill(connection)
    ids = EventIds(connection)
    made = events.record(
        connection, ids, at=1.0, kind="submitted", actor="user:a", detail="", jobs="[1,10]", new="Waiting"
    )
    last = dict.fromkeys(range(1, 4), made)
    for at, kind, new, whose in (
        (2.0, "offered", "Matched", (1, 2)),
        (3.0, "killed", "Killed", (2, 3)),
        (4.0, "x", "y", (1,)),
    ):
        batch = EventBatch(ids, at, "server")
        for job in whose:
            last[job] = batch.add(kind, "old", new, JobId(job), 5, last[job], "why")
        batch.write(connection)
        batch.write(connection)
    assert connection.execute("SELECT count(*) FROM events").fetchone() == (4,)
    kinds = {job: [event.kind for event in events.history(connection, JobId(job), last[job])] for job in last}
    assert kinds == {
        1: ["submitted", "offered", "x"],
        2: ["submitted", "offered", "killed"],
        3: ["submitted", "killed"],
    }
    event = events.history(connection, JobId(1), last[1])[-1]
    assert (event.at, event.actor, event.old, event.new, event.epoch, event.detail) == (
        4.0,
        "server",
        "old",
        "y",
        5,
        "why",
    )
    assert events.history(connection, JobId(1), 0) == []
    # Ids go on after a restart.
    assert EventIds(connection).next() == 5


def test_alike_moves_with_different_details_are_events_of_their_own(connection: Any) -> None:
    batch = EventBatch(EventIds(connection), 1.0, "server")
    same = {batch.add("k", "a", "b", JobId(job), 1, 0, "one") for job in range(5)}
    assert len(same) == 1
    assert batch.add("k", "a", "b", JobId(5), 1, 0, "two") not in same


def test_tries_and_results(connection: Any) -> None:
    attempts.save_begun(
        connection, [attempts.Begun(JobId(1), 2, 1, PilotId(7), 3.0, 4, "alice", "physics", "here", 1.5)]
    )
    assert attempts.pilot_of(connection, JobId(1), 2) == 7
    assert attempts.pilot_of(connection, JobId(1), 1) is None
    closed = attempts.Closed(9.0, "applied", 0, "", "m", 5.0, 4.0, 30, JobId(1), 2)
    attempts.save_closed(connection, [closed])
    attempts.save_cut(connection, [attempts.Cut(9.0, "killed", JobId(1), 99)])
    assert connection.execute("SELECT outcome, ended, max_rss FROM attempts").fetchall() == [
        ("applied", 9.0, 30)
    ]
    result = attempts.Result(JobId(1), 2, b"out\x00", None, [("f", 5)], ["*.x"])
    attempts.save_results(connection, [result, result])
    assert attempts.result_of(connection, JobId(1), 2) == result
    assert attempts.result_of(connection, JobId(1), 1) is None
    attempts.delete_results(connection, [JobId(1)])
    assert attempts.result_of(connection, JobId(1), 2) is None


def test_pilots_and_their_leases(connection: Any) -> None:
    fill(connection)
    with pytest.raises(ValueError, match="secret_hash"):
        pilots.update(connection, PilotId(1), secret_hash="mine")
    pilots.update(connection, PilotId(1), token_hash="t", lease_until=100.0, state="Running")
    found = pilots.by_token(connection, "t")
    assert found == pilots.by_secret(connection, "s", 0) == pilots.by_id(connection, PilotId(1))
    assert pilots.by_secret(connection, "s", 5) is None
    assert [pilot.id for pilot in pilots.with_lease_before(connection, 100.0)] == []
    assert [pilot.id for pilot in pilots.with_lease_before(connection, 100.1)] == [1]
    offer(connection, 1, 1, 50.0, 1)
    pilots.extend_leases(connection, 10.0)
    assert [pilot.id for pilot in pilots.with_lease_before(connection, 110.0)] == []
    assert jobs.lapsed_offers(connection, 60.0, 9) == []
    assert [pilot.id for pilot in pilots.live(connection, "ce there")] == [2]
    pilots.update(connection, PilotId(1), ended=5.0)
    assert [pilot.id for pilot in pilots.live(connection)] == [2]
    assert pilots.with_lease_before(connection, 1000.0) == []


def test_a_queues_row_stays_while_jobs_may_come_back_and_its_id_is_never_given_twice(connection: Any) -> None:
    queue = fill(connection)
    assert (
        submissions.find_queue(connection, IDENTITY)
        == queue
        == submissions.queue_for(connection, IDENTITY, 2.0)
    )
    assert submissions.all_queues(connection) == [(queue, IDENTITY)]

    def a_day_later(at: float) -> list[QueueId]:
        submissions.mark_empty_queues(connection, at)
        return submissions.forget_queues(connection, at + 1)

    # Jobs of its submission are still to be made.
    connection.execute("UPDATE jobs SET state = 'Done'")
    assert a_day_later(10.0) == []
    submissions.all_made(connection, SubmissionId(1))
    for state in ("Waiting", "Matched", "Running", "Stalled", "Completing", "Rescheduled"):
        connection.execute("UPDATE jobs SET state = ? WHERE id = 3", (state,))
        assert a_day_later(10.0) == [], state
    connection.execute("UPDATE jobs SET state = 'Failed'")
    submissions.mark_empty_queues(connection, 10.0)
    # A job was rescheduled by hand and runs, though the row is marked.
    connection.execute("UPDATE jobs SET state = 'Running' WHERE id = 3")
    assert submissions.forget_queues(connection, 11.0) == []
    connection.execute("UPDATE jobs SET state = 'Failed' WHERE id = 3")
    assert submissions.forget_queues(connection, 11.0) == []
    assert a_day_later(20.0) == [queue]
    assert submissions.find_queue(connection, IDENTITY) is None
    assert submissions.insert_queue(connection, QueueIdentity("bob", "other"), 30.0) > queue


def test_the_instance_and_its_policies(connection: Any) -> None:
    assert instance.load(connection) is None
    assert instance.current_policy(connection) is None
    made = instance.create(connection, "uuid", 5.0)
    assert instance.load(connection) == made
    instance.alive(connection, 9.0)
    assert instance.load(connection).alive_at == 9.0
    versions = [instance.save_policy(connection, text=t, now=1.0, by="a", reason="r") for t in ("one", "two")]
    assert versions == [1, 2]
    assert instance.current_policy(connection).text == "two"


def test_versions_of_the_policy_are_paged_from_the_newest(connection: Any) -> None:
    assert instance.policy_versions(connection, 0, 5) == []
    assert instance.policy_version(connection, 1) is None
    for number in range(1, 8):
        instance.save_policy(connection, text=f"text {number}", now=number, by="a", reason=f"r{number}")
    assert instance.policy_version(connection, 3) == instance.PolicyVersion(3, "text 3", 3.0, "a", "r3")
    assert instance.policy_version(connection, 8) is None
    first = instance.policy_versions(connection, 0, 3)
    assert [(one.version, one.text, one.reason) for one in first] == [
        (7, "", "r7"), (6, "", "r6"), (5, "", "r5"),
    ]  # fmt: skip
    # One that comes meanwhile does not shift the pages.
    instance.save_policy(connection, text="text 8", now=8.0, by="b", reason="")
    rest = instance.policy_versions(connection, 5, 10)
    assert [one.version for one in rest] == [4, 3, 2, 1]
    assert instance.policy_versions(connection, 1, 10) == []
    assert instance.policy_versions(connection, 0, 1)[0].applied_by == "b"


def test_live_pilots_are_counted_by_site_and_ce(connection: Any) -> None:
    assert pilots.live_counts(connection) == []
    for number, (site, ce) in enumerate([("a", "x"), ("a", "x"), ("a", "y"), ("b", "z")]):
        pilots.insert(
            connection, stamp=str(number), secret_hash=str(number), idx=0, site=site, ce=ce, only_owner=None,
            now=1.0, pilot_type="generic", processors=1, memory=0,
        )  # fmt: skip
    pilots.update(connection, PilotId(4), ended=2.0)
    assert pilots.live_counts(connection) == [("a", "x", 2), ("a", "y", 1)]


def test_uploads_are_each_owners_own(connection: Any) -> None:
    for owner in ("alice", "alice", "bob"):
        submissions.note_upload(connection, owner, "digest", 5, 1.0)
    assert submissions.upload_size(connection, "alice", "digest") == 5
    assert submissions.upload_size(connection, "carol", "digest") is None


# --- use


def test_buckets_come_back_as_they_were_stored(connection: Any) -> None:
    fill(connection)
    bucket = Bucket(np.array([0, 2]), np.array([60.0, 0.1]), np.array([240.0, 0.2]))
    entities = [("alice", "physics"), ("böb", "physics"), ("", "prod")]
    part = use.Save(None, 99.5, True, 0, entities, [(60, 1200, bucket), (3600, 0, bucket)], [])
    use.save(connection, part)
    use.save(connection, use.Save(99.5, 120.0, False, 3, [("new", "g")], [(60, 1260, bucket)], [(3600, 0)]))
    ledger = Ledger(0.0, 1e6)
    use.load(connection, ledger)
    assert ledger.entities == [*entities, ("new", "g")]
    assert {span: sorted(buckets) for span, buckets in ledger.levels.items()} == {
        60: [1200, 1260],
        3600: [],
        86400: [],
    }
    found = ledger.levels[60][1200]
    assert [list(column) for column in (found.places, found.jobs, found.cores)] == [
        [0, 2],
        [60, 0.1],
        [240, 0.2],
    ]
    assert use.as_of(connection) == 120.0
    use.save(connection, use.Save(None, None, True, 0, [], [], []))
    empty = Ledger(0.0, 1e6)
    use.load(connection, empty)
    assert not empty.entities
    assert use.as_of(connection) is None


def test_only_tries_that_ran_since_are_read(connection: Any) -> None:
    for job, started in ((1, 10.0), (2, 20.0), (3, 30.0)):
        begun = attempts.Begun(JobId(job), 1, 1, PilotId(1), started, job, "alice", "physics", "here", 1.0)
        attempts.save_begun(connection, [begun])
    attempts.save_cut(
        connection, [attempts.Cut(15.0, "killed", JobId(1), 1), attempts.Cut(40.0, "killed", JobId(2), 1)]
    )
    rows = [tuple(row) for portion in use.attempts_since(connection, 15.0) for row in portion]
    assert sorted(rows, key=str) == [("alice", "physics", 20.0, 40.0, 2), ("alice", "physics", 30.0, None, 3)]
    assert use.starts(connection, 15.0, 25.0) == {("alice", "physics"): 1}


def test_what_correctors_carry_on_comes_back(connection: Any) -> None:
    assert use.memory(connection) == (None, {})
    remembered = {("Groups", "Week", "physics"): 1.25, ("a", "b", "ü"): 0.5}
    use.save_memory(connection, 7.0, remembered)
    use.save_memory(connection, 8.0, remembered)
    assert use.memory(connection) == (8.0, remembered)


def test_times_of_waiting_by_owner(connection: Any) -> None:
    queue = fill(connection)
    rows = [(1.0, "slots"), (5.0, "share"), (9.0, ""), (20.0, "limit")]
    connection.executemany(
        "INSERT INTO queue_reasons (queue_id, since, reason) VALUES (?, ?, ?)",
        [(queue, *row) for row in rows],
    )
    assert use.waiting_times(connection, 0.0) == [
        ("alice", "physics", 1.0, 5.0),
        ("alice", "physics", 5.0, 9.0),
        ("alice", "physics", 20.0, None),
    ]
    assert use.waiting_times(connection, 7.0)[0] == ("alice", "physics", 5.0, 9.0)
