"""`pilotage db check`: a sound database gives nothing, each damage is found by its rule alone."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from pilotage.core.errors import Conflict
from pilotage.core.ids import JobId, PilotId, SubmissionId
from pilotage.core.jobs.states import JobState
from pilotage.store.admin import integrity_check
from pilotage.store.admin.revisions import head_revision
from pilotage.store.cluster.id_allocator import SequentialIds
from pilotage.store.tables import attempts, chunks, events, instance, jobs
from pilotage.store.tables.events import last_event
from tests.contract.later_schema import add_revision
from tests.contract.stores import Store, fill, recount


@pytest.fixture
def filled(connection: Any) -> Any:
    """Waiting, offered, held, rescheduled and ended jobs, with their attempts and events."""
    fill(connection)
    ids = SequentialIds(last_event(connection))
    made = events.record(connection, ids, at=1.0, kind="submitted", actor="user:a", detail="", jobs="[1,10]")
    connection.execute("UPDATE jobs SET last_event = ?", (made,))
    chunk = chunks.by_number(connection, SubmissionId(1), 0)
    assert chunk is not None
    chunks.save_made(connection, chunk, 10)
    instance.save_policy(connection, text="", now=1.0, by="a", reason="")
    with_pilot = (
        "UPDATE jobs SET state = 'Matched', epoch = 1, pilot_id = 1, started = 2 WHERE id IN (1, 2, 3, 4)"
    )
    connection.execute(with_pilot)
    jobs.save_held(connection, [jobs.HeldJob(3.0, made, JobId(n)) for n in (2, 3)])
    begun = [
        attempts.StartedAttempt(JobId(n), 1, 1, PilotId(1), 3.0, 1, "alice", "physics", "here", 1.0)
        for n in (2, 3, 4)
    ]
    attempts.save_started(connection, begun)
    attempts.save_finished(
        connection, [attempts.FinishedAttempt(9.0, "applied", 0, "", "", 1.0, 1.0, 1, JobId(4), 1)]
    )
    jobs.save_ended(connection, [jobs.EndedJob(JobState.DONE, 0, 0, "", 0, 9.0, made, JobId(4))])
    jobs.save_freed(connection, [jobs.FreedJob(JobState.RESCHEDULED, 9.0, 1, 0, "", made, JobId(5))])
    recount(connection)
    return connection


def test_a_sound_database_gives_nothing(filled: Any, store: Store) -> None:
    assert integrity_check.find_damage(store.readers.connection(), head_revision()) == []


def test_another_schema_hides_all_other_damage(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A healthy home of an older version is not damaged."""
    present = head_revision()
    with pytest.raises(Conflict, match="development version"):
        integrity_check.find_damage(store.readers.connection(), "0001")
    add_revision(monkeypatch, tmp_path / "later")
    with pytest.raises(Conflict) as caught:
        integrity_check.find_damage(store.readers.connection(), present)
    assert "pilotage db upgrade" in caught.value.hint


DAMAGE = {
    "promises their id": ("UPDATE jobs SET submission_id = 7 WHERE id = 6", "1 jobs .*: 6"),
    "in the history and not": (
        "INSERT INTO history SELECT 6, 1, 1, 'Done', 1, NULL, 1, 1, 0, 0, 1, '', '', 0, 1, 2, 1, '', '', '', '', '', 1,"
        " 1, '', '', '', 0",
        "1 jobs .*: 6",
    ),
    "of which jobs are missing": ("DELETE FROM jobs WHERE id > 7", "1 submissions .*: 1"),
    "make up their number": ("UPDATE submissions SET count = 9", "1 submissions .*: 1"),
    "rows are lost": (
        "UPDATE submission_chunks SET made = 9",
        "1 chunks .*: 1",
    ),
    "task queue is gone": ("UPDATE jobs SET queue_id = 99 WHERE id = 6", "1 unfinished .*: 6"),
    "last event is gone": (
        "UPDATE jobs SET last_event = 3 WHERE id > 0",
        r"9 unfinished .*: 1, 2, 3, 5, 6 \.\.\.",
    ),
    "by no pilot": ("UPDATE jobs SET pilot_id = NULL WHERE id = 1", "1 jobs .*: 1"),
    "state without one": ("UPDATE jobs SET pilot_id = 1 WHERE id = 6", "1 jobs .*: 6"),
    "have ended or are not known": ("UPDATE pilots SET ended = 5 WHERE id = 1", "3 jobs .*: 1, 2, 3"),
    "without an open attempt": ("DELETE FROM attempts WHERE job_id = 2", "1 held .*: 2"),
    "nobody holds them": ("UPDATE attempts SET ended = NULL WHERE job_id = 4", "1 jobs .*: 4"),
    "two results": (
        "INSERT INTO attempts (job_id, epoch, attempt, pilot_id, started, ended, outcome)"
        " VALUES (4, 0, 1, 1, 1, 2, 'applied')",
        "1 jobs .*: 4",
    ),
    "never go back": ("UPDATE jobs SET not_before = NULL WHERE id = 5", "1 rescheduled .*: 5"),
    "has not reached": (
        "INSERT INTO attempts (job_id, epoch, attempt, pilot_id, started, ended) VALUES (4, 9, 1, 1, 1, 2)",
        "1 attempts .*: 4",
    ),
    "owner or final state": ("UPDATE jobs SET final_state = 'Done' WHERE id = 6", "1 jobs .*: 6"),
    "numbers of their jobs": (
        "INSERT INTO count_changes (month, old, new, jobs) VALUES (0, 'Matched', 'Running', '{\"1\": 1}')",
        "1 submissions .*: 1",
    ),
    "sums of their submissions": (
        "UPDATE owner_counts SET jobs = 9 WHERE state = 'Done'",
        "1 owners .*: alice",
    ),
    "part of the database is lost": ("DELETE FROM policies", "the row of the instance"),
}


OF_COUNTERS = {"owner or final state", "numbers of their jobs", "sums of their submissions"}


@pytest.mark.parametrize("what", DAMAGE)
def test_damage_is_found_by_its_rule_alone(filled: Any, store: Store, what: str) -> None:
    sql, words = DAMAGE[what]
    filled.execute(sql)
    if what not in OF_COUNTERS:
        recount(filled)
    found = integrity_check.find_damage(store.readers.connection(), head_revision())
    assert len(found) == 1
    assert what in found[0]
    assert re.match(words, found[0])


def test_an_id_that_would_be_given_again_is_found(filled: Any, store: Store) -> None:
    if store.name == "sqlite":
        pytest.skip("SQLite has no sequences")
    filled.execute("SELECT setval(pg_get_serial_sequence('queues', 'id'), 1, true)")
    filled.execute("UPDATE queues SET id = 5")
    filled.execute("UPDATE jobs SET queue_id = 5")
    [line] = integrity_check.find_damage(store.readers.connection(), head_revision())
    assert "queues" in line


def test_events_that_the_retention_let_go_are_no_damage(filled: Any, store: Store) -> None:
    events.record(filled, SequentialIds(last_event(filled)), at=9.0, kind="x", actor="server", detail="")
    filled.execute("DELETE FROM events WHERE id = 1")
    assert integrity_check.find_damage(store.readers.connection(), head_revision()) == []


def test_a_failed_job_that_began_again_for_a_person_is_no_damage(filled: Any, store: Store) -> None:
    earlier = (
        "INSERT INTO attempts (job_id, epoch, attempt, pilot_id, started, ended, outcome, failure)"
        " VALUES (4, 0, 1, 1, 1, 2, 'applied', 'payload')"
    )
    filled.execute(earlier)
    assert integrity_check.find_damage(store.readers.connection(), head_revision()) == []
