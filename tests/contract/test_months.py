"""History and events by months: what goes goes as if row by row. On PostgreSQL they are partitions, made ahead."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pilotage.core.errors import Overloaded
from pilotage.core.ids import JobId, QueueId, SubmissionId
from pilotage.core.policy import parse
from pilotage.server.duties.retention import RetentionDuty
from pilotage.server.failing_rows import FailingRows
from pilotage.services.retention import RULES, Rule, drop_month
from pilotage.store.admin import integrity_check
from pilotage.store.admin.postgresql import PostgresqlDatabase
from pilotage.store.admin.revisions import head_revision
from pilotage.store.cluster.id_allocator import SequentialIds
from pilotage.store.tables import (
    chunks,
    events,
    history,
    instance,
    job_counts,
    jobs,
    listing,
    partitions,
    retention,
    submissions,
)
from pilotage.store.tables.partitions import month_of, month_start, next_month
from pilotage.store.tables.selections import JobSelection, Viewer
from pilotage.store.writer.writer import Writer
from tests.contract.stores import IDENTITY, Store, assert_counted, recount
from tests.deadlines import PATIENCE
from tests.postgres import server

EVERYBODY = Viewer("", everything=True)
DAY = 86400.0
FIRST, SECOND, THIRD = 202001, 202002, 202003
NOW = month_start(202004) + DAY
[JOBS] = [rule for rule in RULES if rule.name == "jobs"]
[EVENTS] = [rule for rule in RULES if rule.name == "events"]


@contextmanager
def transaction(connection: Any) -> Iterator[Any]:
    connection.begin()
    try:
        yield connection
        connection.commit()
    finally:
        connection.rollback()


def make(connection: Any, *months: int) -> None:
    """Where there are any."""
    if connection.dialect == "postgresql":
        for table in partitions.PARTITION_COLUMN:
            for month in months:
                with transaction(connection):
                    assert partitions.create(connection, table, month)


def carry_out(connection: Any, rule: Rule, before: float, most: int = 7) -> None:
    """One cycle."""
    while True:
        with transaction(connection):
            if not drop_month(connection, rule, before, NOW):
                break
    while True:
        with transaction(connection):
            if rule.step(connection, [], before, most) < most:
                break


@pytest.fixture
def filled(connection: Any) -> Any:
    """Twenty jobs that ended from the first month to the third, of submissions with four each; their events."""
    make(connection, FIRST, SECOND, THIRD)
    with transaction(connection):
        instance.create(connection, "uuid", NOW)
        instance.save_policy(connection, text="", now=1.0, by="a", reason="")
        submissions.insert_queue(connection, IDENTITY, 1.0)
        numbers = SequentialIds(0)
        for number in range(1, 6):
            row = submissions.SubmissionRow(
                SubmissionId(number), "alice", "physics", None, 1.0, "{}", "[]", (), "", "", "User", QueueId(1),
                JobId(4 * number - 3), 4, (),
            )  # fmt: skip
            submissions.insert(connection, row)
            chunk = chunks.ChunkRow(row.id, 0, "", row.first_job, 4, 0, 1.0)
            chunks.insert(connection, chunk, "[]")
            submissions.insert_jobs(connection, row, row.first_job, [None] * 4, 1, 0, 1.0)
            chunks.save_made(connection, chunk, 4)
        for job in range(1, 21):
            at = ended(job)
            last = 0
            for kind in ("offered", "finished"):
                last = events.record(
                    connection,
                    numbers,
                    at=at,
                    kind=kind,
                    actor="user:a",
                    detail="",
                    jobs=f"[[{job},1,{last}]]",
                )
            connection.execute(
                "UPDATE jobs SET state = 'Failed', ended = ?, epoch = 1, last_event = ? WHERE id = ?",
                (at, last, job),
            )
            connection.execute("INSERT INTO results (job_id, epoch) VALUES (?, 1)", (job,))
        recount(connection)
        assert history.archive(connection, NOW, 100) == 20
    return connection


def ended(job: int) -> float:
    """Seven in each month, the last ones in the third."""
    return month_start((FIRST, SECOND, THIRD)[(job - 1) // 7]) + job * DAY


def facts(connection: Any) -> dict[str, Any]:
    """What is left."""
    assert_counted(connection)
    return {
        "jobs": listing.job_ids(connection, JobSelection(), EVERYBODY, 0, 99),
        "counted": job_counts.archived(connection),
        "results": listed(connection, "SELECT job_id FROM results ORDER BY 1"),
        "submissions": listed(connection, "SELECT id FROM submissions ORDER BY 1"),
        "events": listed(connection, "SELECT id FROM events ORDER BY 1"),
        "to remove": sorted(
            job for one in retention.pending_removals(connection, 0, 99) for job in one.names
        ),
    }


def listed(connection: Any, sql: str) -> list[Any]:
    return [row[0] for row in connection.execute(sql)]


def left(first: int, *, submission: int) -> dict[str, Any]:
    """Of jobs from that one on."""
    every = list(range(first, 21))
    return {
        "jobs": every,
        "counted": len(every),
        "results": every,
        "submissions": list(range(submission, 6)),
        "events": list(range(1, 41)),
        "to remove": list(range(1, first)),
    }


# --- on every store


@pytest.mark.parametrize(
    ("before", "first", "submission"),
    [
        (month_start(SECOND) - 1.0, 8, 2),
        (month_start(SECOND), 8, 2),
        (ended(10), 10, 3),
        (month_start(THIRD), 15, 4),
        (NOW, 21, 5),
    ],
)
def test_whole_months_and_parts_of_months_are_deleted_alike(
    filled: Any, store: Store, before: float, first: int, submission: int
) -> None:
    carry_out(filled, JOBS, before)
    carry_out(filled, JOBS, before)
    assert facts(filled) == left(first, submission=submission)
    if store.name == "postgresql":
        gone = [month for month in (FIRST, SECOND, THIRD) if month_start(next_month(month)) <= before]
        assert not {*gone} & {*partitions.months(filled, "history")}
        assert partitions.detached_months(filled, "history") == []
        assert listed(filled, "SELECT name FROM counters") == []
    assert integrity_check.find_damage(store.readers.connection(), head_revision()) == []


def test_events_go_but_the_newest_and_its_month_is_not_dropped(filled: Any) -> None:
    before = listing.jobs(filled, JobSelection(), EVERYBODY, 0, 99)
    carry_out(filled, EVENTS, month_start(SECOND))
    assert facts(filled)["events"] == list(range(15, 41))
    assert events.history(filled, JobId(3), 6) == []
    assert [event.kind for event in events.history(filled, JobId(8), 16)] == ["offered", "finished"]
    carry_out(filled, EVENTS, ended(10))
    assert facts(filled)["events"] == list(range(19, 41))
    carry_out(filled, EVENTS, NOW)
    assert facts(filled)["events"] == [40]
    assert events.last_event(filled) == 40
    assert listing.jobs(filled, JobSelection(), EVERYBODY, 0, 99) == before


def test_jobs_of_any_month_are_found_by_their_ids_and_come_back(filled: Any) -> None:
    wanted = [JobId(20), JobId(1), JobId(9)]
    assert jobs.by_ids(filled, wanted).keys() == {1, 9, 20}
    with transaction(filled):
        assert history.restore(filled, wanted) == 3
    assert listed(filled, "SELECT id FROM jobs ORDER BY id") == [1, 9, 20]
    with transaction(filled):
        assert history.archive(filled, NOW, 100) == 3
    assert facts(filled) == left(1, submission=1)
    since = JobSelection(ended_since=ended(9), ended_before=ended(15))
    assert listing.job_ids(filled, since, EVERYBODY, 0, 99) == [9, 10, 11, 12, 13, 14]


def test_of_an_open_submission_nothing_goes_though_its_month_is_over(filled: Any) -> None:
    filled.execute("UPDATE submissions SET state = 'open' WHERE id = 2")
    carry_out(filled, JOBS, month_start(THIRD))
    assert facts(filled)["jobs"] == [5, 6, 7, 8, *range(15, 21)]
    filled.execute("UPDATE submissions SET state = 'closed' WHERE id = 2")
    carry_out(filled, JOBS, month_start(THIRD))
    assert facts(filled)["jobs"] == [*range(15, 21)]


# --- where they are partitions


@pytest.fixture
def divided(filled: Any, store: Store) -> Any:
    if store.name == "sqlite":
        assert partitions.missing_months(filled, "history", NOW) == []
        assert partitions.expired_months(filled, "events", NOW) == []
        pytest.skip("SQLite has no partitions")
    return filled


def part_of(connection: Any, table: str, id_: int) -> str:
    sql = f"SELECT tableoid::regclass::text FROM {table} WHERE id = ?"
    return str(connection.execute(sql, (id_,)).fetchone()[0])


def test_each_row_is_in_its_month_and_searches_ask_no_other(divided: Any) -> None:
    assert [part_of(divided, "history", job) for job in (1, 7, 8, 20)] == [
        "history_202001", "history_202001", "history_202002", "history_202003",
    ]  # fmt: skip
    assert part_of(divided, "events", 1) == "events_202001"
    sql = "EXPLAIN SELECT id FROM history j WHERE j.ended >= ? AND j.ended < ?"
    plan = str(divided.execute(sql, (ended(9), ended(10))).fetchall())
    assert "history_202002" in plan
    assert "history_202001" not in plan
    assert "history_default" not in plan


def test_months_are_made_ahead_once(divided: Any) -> None:
    now = month_start(203011) + 5 * DAY
    assert partitions.missing_months(divided, "events", now) == [203011, 203012, 203101, 203102]
    make(divided, 203011, 203012, 203101, 203102)
    assert partitions.missing_months(divided, "events", now) == []
    assert partitions.missing_months(divided, "events", now + 60 * DAY) == [203103, 203104]
    with transaction(divided):
        assert not partitions.create(divided, "events", 203012)


def test_rows_without_a_month_are_stored_and_move_to_it_later(
    divided: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The clock stepped, or nobody made months for long."""
    numbers = SequentialIds(100)
    for at in (
        -1e9,
        month_start(190001),
        month_start(205005),
        month_start(205005) + 1,
        month_start(205006),
        1e14,
    ):
        events.record(divided, numbers, at=at, kind="x", actor="server", detail="")
    assert {part_of(divided, "events", number) for number in range(101, 107)} == {"events_default"}
    monkeypatch.setattr(partitions, "MAX_MOVED_ROWS", 1)
    with transaction(divided):
        assert not partitions.create(divided, "events", 205005)
    monkeypatch.setattr(partitions, "MAX_MOVED_ROWS", 2)
    make(divided, 205005)
    assert {part_of(divided, "events", number) for number in (103, 104)} == {"events_205005"}
    assert {part_of(divided, "events", number) for number in (101, 102, 105, 106)} == {"events_default"}
    carry_out(divided, EVENTS, 1e15)
    assert listed(divided, "SELECT id FROM events") == [106]


def test_a_change_of_months_without_locks_changes_nothing_and_is_repeated(divided: Any, store: Store) -> None:
    reader = store.readers.connection()
    reader.begin()
    assert reader.execute("SELECT count(*) FROM history").fetchone() == (20,)
    before = facts(divided)
    whole: list[Callable[[], object]] = [
        lambda: drop_month(divided, JOBS, month_start(SECOND), NOW),
        lambda: partitions.create(divided, "history", 203001),
    ]
    for what in whole:
        divided.begin()
        with pytest.raises(Overloaded):
            what()
        divided.rollback()
    # Until then it goes in slices.
    with transaction(divided):
        assert history.delete_expired(divided, month_start(SECOND), 2) == [1, 2]
    assert reader.execute("SELECT count(*) FROM history").fetchone() == (20,)
    reader.rollback()
    assert len(facts(divided)["jobs"]) == len(before["jobs"]) - 2
    for what in whole:
        with transaction(divided):
            assert what()
    carry_out(divided, JOBS, month_start(SECOND))
    assert facts(divided)["jobs"] == left(8, submission=2)["jobs"]


def test_a_month_that_is_on_its_way_out_is_gone_for_all_and_no_damage(divided: Any, store: Store) -> None:
    """The server may end between any two of these transactions."""
    with transaction(divided):
        assert drop_month(divided, JOBS, month_start(SECOND), NOW)
    sound = integrity_check.find_damage(store.readers.connection(), head_revision())
    assert sound == []
    assert partitions.detached_months(divided, "history") == [FIRST]
    assert facts(divided)["jobs"] == list(range(8, 21))
    assert facts(divided)["counted"] == 13
    assert facts(divided)["results"] == list(range(1, 21))
    assert jobs.by_ids(divided, [1]) == {}
    # Its month is not made again, whatever the clock says.
    assert FIRST not in partitions.missing_months(divided, "history", month_start(FIRST))
    for expected in ([1, 2, 3], [4, 5, 6], [7], []):
        with transaction(divided):
            assert history.delete_dependents(divided, 3) == expected
        assert integrity_check.find_damage(store.readers.connection(), head_revision()) == []
    with transaction(divided):
        assert history.drop_detached_month(divided)
        assert not history.drop_detached_month(divided)
    assert integrity_check.find_damage(store.readers.connection(), head_revision()) == []
    divided.execute("UPDATE submissions SET forgotten = forgotten - 1 WHERE id = 2")
    [line] = integrity_check.find_damage(store.readers.connection(), head_revision())
    assert line.name == "jobs-missing"


def test_an_id_that_is_there_twice_is_damage(divided: Any, store: Store) -> None:
    columns = ", ".join(
        f"{ended(20)}" if name == "ended" else name
        for name in [c[0] for c in divided.execute("SELECT * FROM history LIMIT 0").description]
    )
    divided.execute(f"INSERT INTO history SELECT {columns} FROM history WHERE id = 3")
    divided.execute(
        "INSERT INTO events SELECT id, at + 1, kind, actor, old, new, detail, jobs FROM events WHERE id = 5"
    )
    found = integrity_check.find_damage(store.readers.connection(), head_revision())
    assert [kind.rows for kind in found] == [
        "Jobs that are in history twice: 1 (3)",
        "Events that are in events twice: 1 (5)",
        "Submissions whose counters are not the numbers of their jobs: 1 (1)",
    ]


def test_a_backup_has_all_months_also_one_on_its_way_out(divided: Any, store: Store, tmp_path: Path) -> None:
    with transaction(divided):
        assert drop_month(divided, JOBS, month_start(SECOND), NOW)
        assert history.delete_dependents(divided, 2) == [1, 2]
    before = facts(divided)
    database = PostgresqlDatabase.parse(store.place, server().binaries)
    database.backup(tmp_path / "copy")
    carry_out(divided, JOBS, NOW)
    divided.close()
    _, aside = database.restore(tmp_path / "copy", "20260101T000000")
    assert database.check() == []
    again = store.open_writer()
    assert facts(again) == before
    assert {FIRST} == {*partitions.detached_months(again, "history")}
    assert {FIRST, SECOND, THIRD} <= {*partitions.months(again, "events")}
    # What was put aside is out of the way, months included.
    assert listed(again, f"SELECT count(*) FROM {aside}.history") == [0]
    assert listed(again, f"SELECT count(*) FROM {aside}.events_202001") == [14]
    carry_out(again, JOBS, month_start(SECOND))
    carry_out(again, JOBS, month_start(SECOND))
    assert facts(again) == left(8, submission=2) | {"to remove": list(range(3, 8))}
    again.close()


# --- by the server's duty


def test_the_duty_makes_months_and_lets_them_go(filled: Any, store: Store, writer: Writer) -> None:
    """The connection of `filled` is the writer's."""
    removed: list[int] = []
    policy = parse(POLICY)
    assert policy.retention.jobs == 31 * DAY
    context: Any = SimpleNamespace(
        pool=SimpleNamespace(policy=policy), writer=writer, readers=store.readers, clock=lambda: NOW,
        monotonic=time.monotonic, disk=SimpleNamespace(
            sandbox=SimpleNamespace(
                delete_outputs=removed.append,
                delete_tails=lambda job: None,
                delete_tries=lambda *one: None,
                objects_of=lambda *one: [],
            )
        ),
        duties=SimpleNamespace(retention_ran_at=None, failing=FailingRows(lambda: NOW)),
    )  # fmt: skip
    opened: list[Any] = []

    def session() -> Any:
        if store.name == "sqlite":
            return None
        opened.append(store.open_writer())
        return opened[-1]

    async def cycles() -> None:
        context.stop = asyncio.Event()
        for _ in range(2):
            # Each looks at everything.
            await asyncio.wait_for(RetentionDuty(context, Path(), session).cycle(), PATIENCE)

    asyncio.run(cycles())
    found = listing.job_ids(store.readers.connection(), JobSelection(), EVERYBODY, 0, 99)
    assert found == [job for job in range(1, 21) if ended(job) >= NOW - 31 * DAY]
    assert sorted(removed) == [job for job in range(1, 21) if job not in found]
    if store.name == "postgresql":
        reader = store.readers.connection()
        for table in partitions.PARTITION_COLUMN:
            assert partitions.missing_months(reader, table, NOW) == []
            assert not {FIRST, SECOND} & {
                *partitions.months(reader, table),
                *partitions.detached_months(reader, table),
            }
        assert all(one.lost for one in opened)


POLICY = """
[groups.physics]
share = 1
[users.alice]
groups = ["physics"]
[sites.here]
[ces.local]
type = "local"
site = "here"
[accounting]
history = 691200
[retention]
jobs = 2678400
outputs = 2678400
events = 2678400
attempts = 2678400
"""
"""Jobs and events are kept for 31 days."""


def test_a_month_is_that_of_the_counts() -> None:
    now = time.gmtime(0)
    assert month_of(0.0) == now.tm_year * 100 + now.tm_mon
    month = 197001
    while month < 210001:
        begin, end = month_start(month), month_start(next_month(month))
        assert month_of(begin) == month_of(end - 0.001) == month
        month = next_month(month)
