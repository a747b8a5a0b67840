"""Jobs that have left the hot table: nothing that anybody asks gets another answer."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from random import Random
from typing import Any

import pytest

from pilotage.core.ids import JobId, PilotId, QueueId, SubmissionId
from pilotage.core.jobs.states import FINAL, JobState
from pilotage.store.cluster.id_allocator import BLOCK_SIZES
from pilotage.store.tables import (
    attempts,
    chunks,
    events,
    history,
    instance,
    job_counts,
    jobs,
    listing,
    partitions,
    pilots,
    retention,
    submissions,
)
from pilotage.store.tables.selections import JobSelection, Viewer, WhereClause, history_where
from tests.contract.stores import IDENTITY, Store, assert_counted, recount
from tests.deadlines import PATIENCE
from tests.pilot_intent import pilot_intent

EVERYBODY = Viewer("", everything=True)
OWNERS = (("alice", "physics"), ("alice", "prod"), ("bob", "physics"), ("böb", "prod"))
OTHERS = ("Waiting", "Running", "Rescheduled", "Stalled")


def submission(
    connection: Any, number: int, first: int, count: int, **more: Any
) -> submissions.SubmissionRow:
    owner, group = more.pop("who", OWNERS[0])
    row = submissions.SubmissionRow(
        SubmissionId(number), owner, group, None, float(number), '{"executable": "x"}', "[]", (), more.pop("name", ""),
        more.pop("job_group", ""), "User", QueueId(1), JobId(first), count, (),
    )  # fmt: skip
    submissions.insert(connection, row)
    chunk = chunks.ChunkRow(row.id, 0, "", JobId(first), count, 0, float(number))
    chunks.insert(connection, chunk, "[]")
    parameters, names = more.pop("parameters", [None] * count), more.pop("names", None)
    submissions.insert_jobs(connection, row, JobId(first), parameters, 1, number, float(number), names)
    if not more.pop("pending", False):
        chunks.save_made(connection, chunk, count)
    assert not more
    return row


def end(
    connection: Any, job: int, at: float, state: str = "Done", epoch: int = 1, pilot: int | None = 1
) -> None:
    connection.execute(
        "UPDATE jobs SET state = ?, ended = ?, epoch = ?, attempt = ?, finished_epoch = ?, finished_digest = 'd',"
        " reason = ?, exit_code = 3, failures = 1, own_failures = 2, started = ?, last_event = ?, pilot_id = NULL"
        " WHERE id = ?",
        (state, at, epoch, epoch, epoch, f"reason {job}", at - 2, job, job),
    )
    if pilot is not None:
        connection.execute(
            "INSERT INTO attempts (job_id, epoch, attempt, pilot_id, started, ended, outcome, owner, grp, site)"
            " VALUES (?, ?, ?, ?, ?, ?, 'applied', 'o', 'g', 'here')",
            (job, epoch, epoch, pilot, at - 1, at),
        )


def test_jobs_whose_outputs_are_incomplete_are_told_in_both_tables(connection: Any) -> None:
    submission(connection, 1, 1, 6)
    add_pilots(connection)
    for job in range(1, 6):
        end(connection, job, 10.0 + job, state="Killed" if job == 5 else "Done", epoch=2)
    connection.execute("UPDATE jobs SET state = 'Rescheduled', finished_epoch = 2 WHERE id = 6")
    recount(connection)

    def result(job: int, epoch: int, missing: list[str], refused: list[tuple[str, str]]) -> None:
        row = attempts.Result(JobId(job), epoch, b"o", None, [], missing, refused)
        attempts.save_results(connection, [row])

    result(1, 2, ["*.root"], [])
    result(2, 2, [], [("device", "not a regular file")])
    result(3, 2, [], [])
    result(4, 1, ["of an earlier try"], [])
    result(5, 2, ["of a killed job"], [])
    result(6, 2, ["of a job that is tried again"], [])

    def incomplete() -> dict[int, bool]:
        rows = listing.jobs(connection, JobSelection(submission=1), EVERYBODY, 0, 100)
        return {row.id: row.outputs_incomplete for row in rows}

    told = {job: job in (1, 2) for job in range(1, 7)}
    asked = JobSelection(submission=1, outputs_incomplete=True)
    no_request = JobSelection(submission=1, for_request=False)
    of_requests = JobSelection(for_request=True)
    for _ in range(3):  # all in the hot table, then one, then all final ones in history
        assert incomplete() == told
        assert listing.job_ids(connection, asked, EVERYBODY, 0, 100) == [1, 2]
        assert listing.counts(connection, asked, EVERYBODY) == {"Done": 2}
        assert listing.job_ids(connection, no_request, EVERYBODY, 0, 100) == [*told]
        assert listing.counts(connection, of_requests, EVERYBODY) == {}
        assert listing.counts(connection, JobSelection(outputs_incomplete=True), EVERYBODY) == {"Done": 2}
        history.archive(connection, 100.0, 1)


def add_pilots(connection: Any, count: int = 3) -> None:
    for number in range(1, count + 1):
        pilots.insert(
            connection,
            pilot_intent(f"stamp {number}", secret_hash="s", idx=number, site=f"site {number % 2}", ce="ce"),
        )
        pilots.update(connection, PilotId(number), hostname=f"node {number}")


@pytest.fixture
def many(connection: Any) -> Any:
    """150 jobs of some owners in all kinds of states, ended between 0 and 100."""
    rng = Random(7)
    instance.create(connection, "uuid", 5.0)
    connection.begin()
    submissions.insert_queue(connection, IDENTITY, 1.0)
    add_pilots(connection)
    first = 1
    for number in range(1, 31):
        count = rng.randint(1, 9)
        submission(
            connection, number, first, count, who=rng.choice(OWNERS), name=rng.choice(["", "n", "m"]),
            job_group=rng.choice(["", "", "g"]),
        )  # fmt: skip
        for job in range(first, first + count):
            if rng.random() < 0.8:
                pilot = rng.choice([None, 1, 2, 3, 99])
                state = rng.choice(sorted(FINAL))
                end(connection, job, rng.uniform(0, 100), state, rng.randint(1, 4), pilot)
            else:
                connection.execute("UPDATE jobs SET state = ? WHERE id = ?", (rng.choice(OTHERS), job))
        first += count
    recount(connection)
    connection.commit()
    return connection


def asked(connection: Any) -> dict[str, Any]:
    """Whatever people, pilots and duties ask about jobs."""
    rng = Random(11)
    last = connection.execute("SELECT max(first_job + count - 1) FROM submissions").fetchone()[0]
    answers: dict[str, Any] = {"totals": listing.state_totals(connection)}
    viewers = [
        EVERYBODY,
        Viewer("alice"),
        Viewer("bob", "physics"),
        Viewer("alice", "prod"),
        Viewer("nobody"),
    ]
    for number in range(60):
        selection = JobSelection(
            ids=rng.choice([(), (), rng.sample(range(1, last + 9), 20)]),
            submission=rng.choice([None, None, None, rng.randint(1, 30)]),
            states=rng.choice([(), (), ("Failed",), ("Done", "Waiting"), OTHERS, tuple(map(str, FINAL))]),
            owner=rng.choice(["", "", "alice", "böb"]),
            group=rng.choice(["", "", "physics"]),
            job_group=rng.choice(["", "", "g"]),
            site=rng.choice(["", "", "site 1"]),
            name=rng.choice(["", "", "", "n"]),
            ended_since=rng.choice([None, None, None, 30.0]),
            ended_before=rng.choice([None, None, None, 70.0]),
        )
        viewer = viewers[number % len(viewers)]
        answers[f"jobs {selection} {viewer}"] = pages(
            connection, selection, viewer, rng.choice([1, 3, 7, 500])
        )
        answers[f"counts {selection} {viewer}"] = listing.counts(connection, selection, viewer)
    for viewer in viewers:
        answers[f"all {viewer}"] = pages(connection, JobSelection(), viewer, 40)
        answers[f"all counts {viewer}"] = listing.counts(connection, JobSelection(), viewer)
    every = list(range(last + 3))
    answers["facts"] = [listing.job_facts(connection, job) for job in every]
    answers["attempts"] = [listing.attempts(connection, job) for job in every]
    answers["rows"] = [jobs.by_ids(connection, [job]) for job in every]
    answers["rows together"] = sorted(jobs.by_ids(connection, [*every, *every]).items())
    answers["ids"] = (submissions.last_ids(connection), instance.highest_id(connection))
    return answers


def pages(
    connection: Any, selection: JobSelection, viewer: Viewer, limit: int
) -> list[listing.JobSummaryRow]:
    """All pages; the ids alone must be the same."""
    found: list[listing.JobSummaryRow] = []
    while page := listing.jobs(connection, selection, viewer, found[-1].id if found else 0, limit):
        assert listing.job_ids(connection, selection, viewer, found[-1].id if found else 0, limit) == [
            job.id for job in page
        ]
        found += page
    backwards: list[listing.JobSummaryRow] = []
    while page := listing.jobs(
        connection, selection, viewer, backwards[-1].id if backwards else 0, limit, newest=True
    ):
        backwards += page
    assert backwards == found[::-1]
    return found


def moved(connection: Any, before: float, most: int = 10_000) -> int:
    connection.begin()
    count = history.archive(connection, before, most)
    connection.commit()
    return count


def test_hot_table_and_history_answer_as_one_table(many: Any) -> None:
    before = asked(many)
    assert len(before[f"all {EVERYBODY}"]) > 100
    for instant, most in ((20.0, 3), (20.0, 10_000), (60.0, 17), (1000.0, 10_000)):
        assert moved(many, instant, most)
        after = asked(many)
        for question, answer in before.items():
            assert after[question] == answer, question
    assert history.oldest_unarchived_end(many) is None
    # And back, every third of them.
    ended = [row[0] for row in many.execute("SELECT id FROM history ORDER BY id")]
    many.begin()
    assert history.restore(many, ended[::3]) == len(ended[::3])
    assert history.restore(many, ended[::3]) == 0
    assert history.restore(many, []) == 0
    many.commit()
    after = asked(many)
    for question, answer in before.items():
        assert after[question] == answer, question


def test_final_jobs_move_in_the_order_of_their_ends(many: Any) -> None:
    sql = "SELECT id, state FROM jobs WHERE ended < 50 ORDER BY ended"
    due = list(many.execute(sql).fetchall())
    assert moved(many, 50.0, 4) == 4
    assert {row[0] for row in many.execute("SELECT id FROM history")} == {row[0] for row in due[:4]}
    assert moved(many, 50.0) == len(due) - 4
    assert moved(many, 50.0) == 0
    assert {(row[0], row[1]) for row in many.execute("SELECT id, state FROM history")} == {
        tuple(row) for row in due
    }
    oldest = history.oldest_unarchived_end(many)
    assert oldest is not None
    assert oldest >= 50.0
    assert many.execute("SELECT count(*) FROM jobs WHERE ended < 50").fetchone()[0] == 0
    assert job_counts.archived(many) == len(due)


def test_a_move_that_fails_moves_nothing(many: Any) -> None:
    many.execute("DELETE FROM submissions WHERE id = 2")
    before = many.execute("SELECT count(*) FROM jobs").fetchone()
    many.begin()
    with pytest.raises(RuntimeError, match="came to history"):
        history.archive(many, 1000.0, 10_000)
    many.rollback()
    assert many.execute("SELECT count(*) FROM jobs").fetchone() == before
    assert many.execute("SELECT count(*) FROM history").fetchone()[0] == 0


def test_a_recalled_job_is_one_of_the_hot_table_again(many: Any) -> None:
    [first, *_] = [row[0] for row in many.execute("SELECT id FROM jobs WHERE state = 'Failed' ORDER BY id")]
    before = jobs.by_ids(many, [first])
    moved(many, 1000.0)
    history.restore(many, [first])
    assert many.execute("SELECT id FROM jobs WHERE ended IS NOT NULL").fetchall() == [(first,)]
    assert jobs.by_ids(many, [first]) == before
    freed = jobs.FreedJob(JobState.WAITING, None, 0, 0, "", 99, JobId(first))
    jobs.save_freed(many, [freed])
    assert moved(many, 1000.0) == 0
    assert jobs.by_ids(many, [first])[first].state == JobState.WAITING


@pytest.mark.slow
def test_a_job_is_in_one_table_wherever_the_process_is_killed(store: Store, connection: Any) -> None:
    connection.begin()
    add_pilots(connection)
    for number in range(10):
        submission(connection, number + 1, number * 100 + 1, 100, who=OWNERS[number % 4])
    for job in range(1, 1001):
        end(connection, job, job / 10)
    recount(connection)
    connection.commit()
    chance = Random(5)
    program = Path(__file__).with_name("killed_mover.py")
    for seed in range(8):
        process = subprocess.Popen(
            [sys.executable, str(program), store.place, str(seed)], stdout=subprocess.PIPE
        )
        assert process.stdout is not None
        for _ in range(chance.randrange(1, 120)):
            assert process.stdout.readline() == b"committed\n"
        os.kill(process.pid, signal.SIGKILL)
        process.stdout.close()
        process.wait(PATIENCE)
        hot = list_of(connection, "SELECT id FROM jobs")
        old = list_of(connection, "SELECT id FROM history")
        gone = [job for one in retention.pending_removals(connection, 0, 10_000) for job in one.names]
        assert sorted([*hot, *old, *gone]) == list(range(1, 1001))
        assert_counted(connection)
    assert old
    assert gone


def test_jobs_that_another_server_has_locked_do_not_move(store: Store, many: Any) -> None:
    if store.name == "sqlite":
        pytest.skip("a SQLite file has one writer")
    other = store.open_writer()
    other.renew()
    one, two = list_of(many, "SELECT id FROM jobs WHERE ended IS NOT NULL ORDER BY ended LIMIT 2")
    other.begin()
    other.execute("UPDATE jobs SET state = 'Waiting', ended = NULL WHERE id = ?", (one,))
    count = many.execute("SELECT count(*) FROM jobs WHERE ended IS NOT NULL").fetchone()[0]
    assert moved(many, 1000.0) == count - 1
    other.commit()
    assert moved(many, 1000.0) == 0
    assert jobs.by_ids(many, [one])[one].state == JobState.WAITING
    other.begin()
    other.execute("SELECT id FROM history WHERE id = ? FOR UPDATE", (two,))
    many.begin()
    assert len(history.delete_expired(many, 1000.0, 10_000)) == count - 2
    many.commit()
    assert history.restore(other, [two]) == 1
    other.commit()
    assert jobs.by_ids(many, [two]).keys() == {two}
    assert moved(many, 1000.0) == 1
    other.close()


def test_a_job_that_another_server_puts_back_meanwhile_is_found(
    store: Store, many: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    if store.name == "sqlite":
        pytest.skip("a SQLite file has one writer")
    moved(many, 1000.0)
    other, read = store.open_writer(), history.select
    other.renew()
    one, two = list_of(many, "SELECT id FROM history ORDER BY id LIMIT 2")

    def too_late(connection: Any, columns: str, ids: Any) -> Any:
        history.restore(other, [one])
        return read(connection, columns, ids)

    monkeypatch.setattr(history, "select", too_late)
    assert jobs.by_ids(many, [one, two]).keys() == {one, two}
    assert jobs.by_ids(many, [10**9]) == {}
    other.close()


# --- what goes


def list_of(connection: Any, sql: str) -> list[Any]:
    return [row[0] for row in connection.execute(sql)]


def test_forgotten_jobs_take_results_and_empty_submissions_along(connection: Any) -> None:
    add_pilots(connection)
    submission(connection, 1, 1, 2)
    submission(connection, 2, 3, 2)
    submission(connection, 3, 5, 2, pending=True)
    submission(connection, 4, 7, 1)
    for job, at in ((1, 10.0), (2, 20.0), (3, 30.0), (5, 5.0), (6, 6.0), (7, 7.0)):
        end(connection, job, at)
        connection.execute("INSERT INTO results (job_id, epoch) VALUES (?, 1)", (job,))
    recount(connection)
    moved(connection, 1000.0)
    assert history.delete_expired(connection, 10.0, 9) == [7]
    assert history.delete_expired(connection, 25.0, 1) == [1]
    # Job 2 of the first submission is still there; the fourth is the newest; the third is being made.
    assert list_of(connection, "SELECT id FROM submissions ORDER BY id") == [1, 2, 3, 4]
    assert history.delete_expired(connection, 1000.0, 9) == [2, 3]
    assert list_of(connection, "SELECT id FROM submissions ORDER BY id") == [2, 3, 4]
    assert list_of(connection, "SELECT job_id FROM results ORDER BY job_id") == [5, 6]
    assert list_of(connection, "SELECT id FROM history ORDER BY id") == [5, 6]
    assert submissions.last_ids(connection) == (4, 7)
    assert instance.highest_id(connection) == 7
    assert job_counts.archived(connection) == 2
    assert jobs.by_ids(connection, [1, 4]).keys() == {4}
    third = chunks.by_number(connection, SubmissionId(3), 0)
    assert third is not None
    chunks.save_made(connection, third, 2)
    assert history.delete_expired(connection, 1000.0, 9) == [5, 6]
    assert job_counts.archived(connection) == 0
    assert_counted(connection)


def test_ends_are_read_once_though_many_are_at_one_instant(connection: Any) -> None:
    submission(connection, 1, 1, 9)
    for job, at in zip(range(1, 10), (1.0, 2.0, 2.0, 2.0, 3.0, 4.0, 4.0, 5.0, 6.0), strict=True):
        end(connection, job, at, epoch=job)
    recount(connection)
    moved(connection, 6.0)
    first = history.ended_between(connection, 0.0, 100.0, 2)
    assert sorted((job.job, job.epoch) for job, _ in first) == [(1, 1), (2, 2), (3, 3), (4, 4)]
    assert [at for _, at in first] == [1.0, 2.0, 2.0, 2.0]
    assert sorted(job.job for job, _ in history.ended_between(connection, 2.5, 4.0, 50)) == [5]
    assert sorted(job.job for job, _ in history.ended_between(connection, 2.5, 100.0, 50)) == [5, 6, 7, 8]
    assert history.ended_between(connection, 50.0, 100.0, 2) == []


def test_old_events_go_but_the_newest(connection: Any) -> None:
    assert retention.delete_events(connection, 100.0, 9) == 0
    for number in range(1, 8):
        connection.execute(
            "INSERT INTO events (id, at, kind, actor, old, new, detail, jobs) VALUES (?, ?, '', '', '', '', '', '')",
            (number, float(number)),
        )
    assert retention.delete_events(connection, 3.0, 9) == 2
    assert retention.delete_events(connection, 6.0, 1) == 1
    assert list_of(connection, "SELECT id FROM events ORDER BY id") == [4, 5, 6, 7]
    assert retention.delete_events(connection, 100.0, 9) == 3
    assert retention.delete_events(connection, 100.0, 9) == 0


def test_old_events_go_though_a_server_still_uses_ids_of_before(connection: Any) -> None:
    """Servers take ids in blocks: those of one that has little to do rise slowly."""
    if connection.dialect == "sqlite":
        pytest.skip("one server")
    block = BLOCK_SIZES["events"]
    slow, busy = {1: 1.0, 2: 2.0, 3: 90.0}, {block + n: float(n) for n in range(1, 9)}
    idle, last = {2 * block + 1: 95.0}, {3 * block + n: 4.0 for n in range(1, 4)}
    for id_, at in {**slow, **busy, **idle, **last}.items():
        connection.execute("INSERT INTO events VALUES (?, ?, 'k', 'a', '', '', '', '[]')", (id_, at))
    assert retention.delete_events(connection, 50.0, 4) == 4
    # What lies in the next block less far in than the one that stays in its own goes later.
    assert retention.delete_events(connection, 50.0, 100) == 4
    left = [3, *(block + n for n in (1, 2, 3)), 2 * block + 1, 3 * block + 1, 3 * block + 3]
    assert list_of(connection, "SELECT id FROM events ORDER BY id") == left
    assert retention.delete_events(connection, 93.0, 100) == 4
    assert retention.delete_events(connection, 96.0, 100) == 2


def test_old_attempts_are_deleted_and_open_attempts_stay(connection: Any) -> None:
    submission(connection, 1, 1, 3)
    for job, at in ((1, 1.0), (2, 2.0), (3, 3.0)):
        end(connection, job, at)
    connection.execute("UPDATE attempts SET ended = NULL WHERE job_id = 1")
    assert retention.delete_attempts(connection, 3.0, 9) == 1
    assert list_of(connection, "SELECT job_id FROM attempts ORDER BY job_id") == [1, 3]


def test_the_last_reason_of_a_queue_stays(connection: Any) -> None:
    rows = [(1, 1.0), (1, 2.0), (2, 1.0), (1, 9.0), (3, 8.0)]
    for queue, since in rows:
        connection.execute(
            "INSERT INTO queue_reasons (queue_id, since, reason) VALUES (?, ?, 'r')", (queue, since)
        )
    old = retention.expired_reasons(connection, 5.0)
    assert retention.delete_reasons(connection, old[:1]) == 1
    assert retention.delete_reasons(connection, old[1:]) == 1
    sql = "SELECT queue_id, since FROM queue_reasons ORDER BY queue_id, since"
    assert [tuple(row) for row in connection.execute(sql)] == [(1, 9.0), (2, 1.0), (3, 8.0)]


def test_old_pilots_go_unless_they_have_come_back(connection: Any) -> None:
    add_pilots(connection, 4)
    for number in (1, 2, 4):
        pilots.update(connection, PilotId(number), ended=float(number))
    old = retention.expired_pilots(connection, 10.0)
    assert old == [1, 2]
    pilots.update(connection, PilotId(2), ended=None)
    assert retention.delete_pilots(connection, old, 10.0) == [("stamp 1", "ce")]
    assert list_of(connection, "SELECT id FROM pilots ORDER BY id") == [2, 3, 4]


def test_inputs_go_when_no_submission_names_them(connection: Any) -> None:
    for owner, digest, at in (
        ("alice", "used", 1.0),
        ("alice", "old", 1.0),
        ("bob", "old", 2.0),
        ("alice", "young", 1.0),
        ("bob", "young", 50.0),
        ("alice", "used later", 1.0),
    ):
        submissions.insert_upload(connection, owner, digest, 5, at)
    submission(connection, 1, 1, 1)
    naming(connection, 1, "used", "gone before")
    old = retention.expired_uploads(connection, 10.0)
    assert old == {"used", "old", "used later"}
    named = retention.referenced_inputs(connection, old)
    assert named == ({"used"}, 1)
    submission(connection, 2, 2, 1)
    naming(connection, 2, "used later")
    assert retention.delete_uploads(connection, sorted(old - named.digests), 10.0, named.last) == ["old"]
    assert not retention.is_uploaded(connection, "old")
    assert all(retention.is_uploaded(connection, digest) for digest in ("used", "young", "used later"))
    submissions.insert_upload(connection, "bob", "used later", 5, 60.0)
    assert retention.delete_uploads(connection, ["used later"], 10.0, 2) == []


def test_an_input_that_a_submission_is_just_naming_stays(connection: Any) -> None:
    """Whatever id the submission has: other servers give some below those that were looked at."""
    for digest in ("wanted", "old"):
        submissions.insert_upload(connection, "alice", digest, 5, 1.0)
    found = sorted(retention.expired_uploads(connection, 10.0))
    assert submissions.renew_upload(connection, "alice", "wanted", 60.0)
    assert retention.delete_uploads(connection, found, 10.0, 999) == ["old"]
    assert not submissions.renew_upload(connection, "alice", "old", 60.0)
    assert not submissions.renew_upload(connection, "bob", "wanted", 60.0)


def naming(connection: Any, number: int, *digests: str) -> None:
    items = ", ".join(f'{{"name": "n", "mode": "copy", "source": "{digest}"}}' for digest in digests)
    connection.execute("UPDATE submissions SET inputs = ? WHERE id = ?", (f"[{items}]", number))


def test_files_to_remove_are_remembered_until_they_are_gone(connection: Any) -> None:
    retention.schedule_removal(connection, "jobs", [])
    retention.schedule_removal(connection, "tries", [history.JobEpoch(JobId(1), 2)])
    retention.schedule_removal(connection, "pilots", ["a", "b"])
    first, second = retention.pending_removals(connection, 0, 9)
    assert (first.kind, first.names, second.names) == ("tries", [[1, 2]], ["a", "b"])
    retention.delete_removals(connection, [first.id])
    assert retention.pending_removals(connection, 0, 9) == [second]


def test_progress_adds_up(connection: Any) -> None:
    assert retention.progress(connection) == {}
    assert retention.until(connection, "outputs") == 0.0
    retention.save_until(connection, "outputs", 5.5)
    retention.add_progress(connection, "outputs", 7.0, 3)
    retention.add_progress(connection, "outputs", 8.0, 4)
    retention.add_progress(connection, "hot", 8.0, 1)
    assert retention.progress(connection) == {"outputs": (5.5, 8.0, 7), "hot": (None, 8.0, 1)}
    retention.save_until(connection, "outputs", 9.5)
    assert retention.until(connection, "outputs") == 9.5


# --- plans

APART = 500.0
"""Seconds between two ends of jobs: 20,000 of them are four months."""

QUESTIONS: dict[str, tuple[JobSelection, Viewer]] = {
    "one's own": (JobSelection(), Viewer("user 3")),
    "one's own and the group's": (JobSelection(), Viewer("user 3", "group 1")),
    "one's own failed ones": (JobSelection(states=["Failed"]), Viewer("user 3")),
    "those of somebody": (JobSelection(owner="user 3"), EVERYBODY),
    "those of a group": (JobSelection(group="group 1"), EVERYBODY),
    "all failed ones": (JobSelection(states=["Failed", "Killed"]), EVERYBODY),
    "all": (JobSelection(), EVERYBODY),
    "a job": (JobSelection(ids=[73]), Viewer("user 3")),
    "a submission": (JobSelection(submission=50), Viewer("user 3")),
    "a name": (JobSelection(name="name"), Viewer("user 3")),
    "lately": (JobSelection(ended_since=19_000.0 * APART), Viewer("user 3")),
    "a job group": (JobSelection(job_group="group of jobs"), Viewer("user 3")),
}


@pytest.fixture
def large(store: Store, connection: Any) -> Any:
    """20,000 old jobs of ten owners, in several months, analysed."""
    if connection.dialect == "postgresql":
        for month in range(197001, 197005):
            connection.begin()
            assert partitions.create(connection, "history", month)
            connection.commit()
    connection.begin()
    columns = (
        "id, submission_id, queue_id, state, user_priority, epoch, attempt, failures, own_failures, finished_epoch,"
        " finished_digest, reason, submitted, ended, last_event, owner, grp, job_name, job_group, job_type, site, ce,"
        " hostname"
    )
    if connection.dialect == "sqlite":
        numbers = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 20000)"
        whose = "'user ' || (i % 10), 'group ' || (i % 3)"
    else:
        numbers = "WITH n(i) AS (SELECT * FROM generate_series(1, 20000))"
        whose = "'user ' || (i % 10)::text, 'group ' || (i % 3)::text"
    connection.execute(
        f"{numbers} INSERT INTO history ({columns}) SELECT i, i / 100, 1,"
        " CASE WHEN (i / 10) % 30 = 0 THEN 'Failed' ELSE 'Done' END, 1, 1, 1, 0, 0, 1, '', '', 1.0,"
        f" i * {APART}, i, {whose}, CASE WHEN (i / 10) % 30 = 2 THEN 'name' ELSE '' END,"
        " CASE WHEN (i / 10) % 30 = 1 THEN 'group of jobs' ELSE '' END, 'User', 'here', 'ce', 'n' FROM n"
    )
    connection.commit()
    connection.execute("ANALYZE")
    return connection


def test_a_search_among_old_jobs_uses_an_index_and_sorts_nothing(large: Any) -> None:
    for question, (selection, viewer) in QUESTIONS.items():
        for branch in history_where(large, selection, viewer):
            plan = " / ".join(planned(large, branch))
            # A search for all jobs needs no index: the table is in order already.
            assert "SEARCH j USING" in plan or "Index" in plan, (question, plan)
            # PostgreSQL scans a month without rows instead of using its index.
            assert re.search(r"Seq Scan on (jobs|history_1970)", plan) is None, (question, plan)
            assert "TEMP B-TREE" not in plan or question == "lately", (question, plan)
        ids = listing.job_ids(large, selection, viewer, 7, 50)
        assert ids == sorted(set(ids)), question
        assert len(ids) == {"a job": 1, "a submission": 10}.get(question, 50), question


def test_old_jobs_and_events_are_looked_up_by_their_ids(large: Any) -> None:
    """Whatever month they are of."""
    explain = {"sqlite": "EXPLAIN QUERY PLAN ", "postgresql": "EXPLAIN "}[large.dialect]
    plans: list[str] = []

    class Explained:
        dialect = large.dialect

        def execute(self, sql: str, values: Any) -> Any:
            plans.extend(str(row[-1]) for row in large.execute(explain + sql, values).fetchall())
            return large.execute(sql, values)

    wanted = [7, 19_000, 12_000, 20_001]
    found = history.select(Explained(), "id, NULL, owner", wanted).fetchall()  # type: ignore[arg-type]
    assert sorted(found) == [(7, None, "user 7"), (12_000, None, "user 0"), (19_000, None, "user 0")]
    assert events.history(Explained(), JobId(7), 5) == []  # type: ignore[arg-type]
    plan = " / ".join(plans)
    assert re.search(r"SCAN (history|events)|Seq Scan on history_1970", plan) is None, plan
    assert re.search(r"SEARCH history USING|history_197004_pkey", plan), plan


def planned(connection: Any, branch: WhereClause) -> list[str]:
    sql = f"SELECT j.id FROM history j WHERE {branch.sql} AND j.id > ? ORDER BY j.id LIMIT ?"
    explain = {"sqlite": "EXPLAIN QUERY PLAN", "postgresql": "EXPLAIN"}[connection.dialect]
    return [
        str(row[-1]) for row in connection.execute(f"{explain} {sql}", [*branch.values, 7, 50]).fetchall()
    ]


def test_jobs_with_names_of_their_own_keep_them_on_all_their_ways(connection: Any) -> None:
    connection.begin()
    names = ["sim-1.10", 'q"uote\\', "sim-ü", "all"]
    rows = ['[1.10,"a\\"b"]', "[true,null]", "[2,3.0]", None]
    submission(connection, 1, 1, 4, name="all", names=names, parameters=rows)
    submission(connection, 2, 5, 1, name="other")
    connection.commit()

    def named(*name: str) -> list[tuple[int, str]]:
        selection = JobSelection(name=name[0]) if name else JobSelection()
        return [(row.id, row.name) for row in listing.jobs(connection, selection, EVERYBODY, 0, 10)]

    def kept() -> list[tuple[Any, ...]]:
        sql = "SELECT id, parameters, name FROM jobs ORDER BY id"
        return [tuple(row) for row in connection.execute(sql).fetchall()]

    before = kept()
    assert [row[1] for row in before] == [*rows, None]
    everything = [*enumerate(names, 1), (5, "other")]
    assert named() == everything
    assert named("sim-ü") == [(3, "sim-ü")]
    assert listing.counts(connection, JobSelection(name="sim-1.10"), EVERYBODY) == {"Waiting": 1}
    connection.begin()
    for job in range(1, 6):
        end(connection, job, 10.0 + job)
    recount(connection)
    assert history.archive(connection, 100.0, 10) == 5
    connection.commit()
    assert named() == everything
    assert named("sim-ü") == [(3, "sim-ü")]
    assert named("other") == [(5, "other")]
    connection.begin()
    assert history.restore(connection, [1, 2, 3, 4, 5]) == 5
    connection.commit()
    assert named() == everything
    # A name that is the submission's may be kept as such: it is the same name.
    assert [row[2] or "all" for row in kept()[:4]] == names
    assert kept()[4][2] is None
