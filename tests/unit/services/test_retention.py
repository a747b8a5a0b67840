"""How long things are kept: rules, slices, and the life of a job that ended long ago. Time is a number here."""

from __future__ import annotations

import math
from typing import Any

import pytest

from pilotage.core.jobs.description import JobDescription
from pilotage.core.policy import Policy, parse
from pilotage.core.requests.specification import Program, UploadedFile
from pilotage.services import retention
from pilotage.services.jobs.actions import act
from pilotage.services.retention import (
    FIRST_SIZE,
    MAX_SIZE,
    MIN_SIZE,
    RULES,
    SLICE,
    Rule,
    SliceResult,
    run_slice,
)
from pilotage.services.submission import job_creation as making_module
from pilotage.services.submission.job_creation import JobCreator
from pilotage.store.tables import attempts, history, jobs, listing
from pilotage.store.tables import retention as retention_rows
from pilotage.store.tables.selections import JobSelection, Viewer
from pilotage.wire.pilot import Reference, Release
from tests.unit.services.bench import POLICY, Bench, finished
from tests.unit.services.request_bench import RequestBench

EVERYBODY = Viewer("", everything=True)
DAY = 86400.0


class Stopwatch:
    """Each look takes as long as it is told."""

    def __init__(self, *takes: float) -> None:
        self.takes = list(takes)
        self.now = 0.0
        self.running = False

    def __call__(self) -> float:
        if self.running:
            self.now += self.takes.pop(0) if len(self.takes) > 1 else self.takes[0]
        self.running = not self.running
        return self.now


def everything(bench: Bench, now: float | None = None, policy: Policy | None = None) -> dict[str, int]:
    """What the duty does in one cycle; rows seen to."""
    at, policy = bench.now if now is None else now, policy or bench.pool.policy
    paces, seen = {rule.name: retention.new_pace(Stopwatch(SLICE)) for rule in RULES}, {}
    for rule in RULES:
        before = at - rule.keeps(policy)
        found = list(rule.find(bench.connection, before)) if rule.find else []
        seen[rule.name] = 0
        while True:
            done = bench.do(
                lambda tx, rule=rule, found=found, before=before, pace=paces[rule.name]: run_slice(
                    tx.connection, rule, found, before, at, pace
                )
            )
            seen[rule.name] += done.rows
            del found[: done.rows]
            if done.last:
                break
    return {name: rows for name, rows in seen.items() if rows}


def summary(bench: Bench, job: int) -> listing.JobSummaryRow:
    [row] = listing.jobs(bench.connection, JobSelection(ids=[job]), EVERYBODY, 0, 1)
    return row


def ended(bench: Bench, *verdicts: dict[str, Any]) -> list[Any]:
    """Jobs that a pilot has finished so; their offers."""
    bench.submit(len(verdicts)) if len(verdicts) > 1 else bench.submit()
    paper = bench.pilot(processors=len(verdicts))
    offers = paper.take(len(verdicts), processors=len(verdicts))
    assert len(offers) == len(verdicts)
    for offer, content in zip(offers, verdicts, strict=True):
        assert paper.confirm(offer) == "accepted"
        assert paper.finish(offer, **content) == "accepted"
    return [paper, *offers]


def is_old(bench: Bench, job: int) -> bool:
    found = bench.connection.execute("SELECT count(*) FROM jobs WHERE id = ?", (job,)).fetchone()[0]
    assert (
        found + bench.connection.execute("SELECT count(*) FROM history WHERE id = ?", (job,)).fetchone()[0]
        == 1
    )
    return not found


# --- a job that ended long ago


def test_a_repeated_finish_of_an_old_job_gets_the_same_answer(bench: Bench) -> None:
    paper, offer = ended(bench, {})
    other = bench.pilot()
    bench.now += 2 * DAY
    assert everything(bench) == {"hot": 1}
    assert is_old(bench, offer.job)
    before = summary(bench, offer.job)
    assert paper.finish(offer) == "accepted"
    assert paper.finish(offer, exit_code=1) == "superseded"
    assert paper.confirm(offer) == "superseded"
    assert paper.release(offer) == "superseded"
    assert paper.stopped(offer) == [offer.job]
    assert other.finish(offer) == "superseded"
    answer = paper.send(
        finishes=[finished(offer)], releases=[Release(offer.job, offer.epoch)],
        confirms=[Reference(offer.job, offer.epoch), Reference(99, 1)],
    )  # fmt: skip
    assert [one.verdict for one in answer.finishes + answer.releases] == ["accepted", "superseded"]
    assert [one.verdict for one in answer.confirms] == ["superseded", "unknown"]
    assert summary(bench, offer.job) == before
    assert is_old(bench, offer.job)


def test_an_old_job_is_rescheduled_and_runs_again(bench: Bench) -> None:
    paper, offer = ended(bench, {"exit_code": 1})
    bench.now += 2 * DAY
    everything(bench)
    assert is_old(bench, offer.job)
    assert bench.act("reschedule", offer.job, dry_run=True).done == [offer.job]
    assert is_old(bench, offer.job)
    assert bench.act("reschedule", offer.job).done == [offer.job]
    assert not is_old(bench, offer.job)
    bench.check()
    assert bench.state(offer.job) == "Waiting"
    assert paper.finish(offer, exit_code=1) == "accepted"
    assert bench.state(offer.job) == "Waiting"
    again = paper.hold()
    assert (again.job, again.epoch) == (offer.job, offer.epoch + 1)
    assert paper.finish(again) == "accepted"
    bench.now += 2 * DAY
    assert everything(bench) == {"hot": 1}
    assert bench.moves(offer.job)[-5:] == ["Rescheduled", "Waiting", "Matched", "Running", "Done"]
    bench.check()


def test_a_reschedule_that_fails_leaves_the_job_in_history(bench: Bench) -> None:
    _, offer = ended(bench, {"exit_code": 1})
    bench.now += 2 * DAY
    everything(bench)
    with pytest.raises(ZeroDivisionError):
        bench.do(lambda tx: [act_on(bench, tx, offer.job), 1 // 0])
    assert is_old(bench, offer.job)
    assert bench.state(offer.job) == "Failed"
    bench.check()


def act_on(bench: Bench, tx: Any, job: int) -> None:
    act(bench.pool, tx, "reschedule", [job], actor="user:alice", reason="", now=bench.now, dry_run=False)
    assert jobs.by_ids(tx.connection, [job])[job].state == "Waiting"


def test_an_old_job_is_deleted_and_not_killed(bench: Bench) -> None:
    _, offer, other = ended(bench, {}, {"exit_code": 1})
    bench.now += 2 * DAY
    everything(bench)
    refused = bench.act("kill", offer.job, other.job)
    assert set(refused.refused) == {
        (offer.job, "the job is already Done"),
        (other.job, "the job is already Failed"),
    }
    assert bench.act("reschedule", offer.job).refused == [
        (offer.job, f"the job is Done: `pilotage reschedule --done {offer.job}` runs it again in its place")
    ]
    assert is_old(bench, offer.job)
    assert is_old(bench, other.job)
    assert sorted(bench.act("delete", offer.job, other.job).done) == [1, 2]
    assert listing.state_totals(bench.connection) == {"Deleted": 2}
    bench.check()
    bench.now += 2 * DAY
    assert everything(bench) == {"hot": 2}
    assert bench.act("delete", offer.job).refused == [(offer.job, "the job is already Deleted")]


# --- what goes when


KEPT = parse(
    POLICY.replace("[ces.local]", "[ces.local]\nwall = 1000")
    .replace("[ces.home]", "[ces.home]\nwall = 1000")
    .replace("[sites.here]", "[accounting]\nhistory = 691200\n[sites.here]")
    + f"[retention]\nhot = 60\noutputs = {DAY}\njobs = {10 * DAY}\nattempts = {20 * DAY}\nevents = {30 * DAY}\n"
    + f"pilots = {2 * DAY}\nreasons = {40 * DAY}\nuploads = {5 * DAY}\n"
)


def test_each_kind_of_thing_goes_when_its_time_is_over(bench: Bench) -> None:
    paper, offer, _ = ended(bench, {"stdout": "b3V0"}, {})
    begin = bench.now
    paper.send(leaving="idle")
    bench.pilot()
    bench.connection.execute(
        "INSERT INTO queue_reasons (queue_id, since, reason) VALUES (1, ?, 'r'), (1, ?, '')", (begin, begin)
    )
    bench.connection.execute(
        "INSERT INTO uploads (owner, digest, size, uploaded) VALUES ('alice', ?, 1, ?)", ("a" * 64, begin)
    )
    bench.submit()
    bench.act("kill", 3)
    events = bench.connection.execute("SELECT count(*) FROM events").fetchone()[0]
    due = {
        50.0: {},
        70.0: {"hot": 3},
        DAY + 1: {"outputs": 3},
        2 * DAY + 1: {"pilots": 1},
        5 * DAY + 1: {"uploads": 1},
        10 * DAY + 1: {"jobs": 3},
        20 * DAY + 1: {"attempts": 2},
        30 * DAY + 1: {"events": events - 1},
        40 * DAY + 1: {"reasons": 1},
        80 * DAY: {},
    }
    for after, rows in due.items():
        assert everything(bench, begin + after, KEPT) == rows, after
        assert everything(bench, begin + after, KEPT) == {}, after
        if after == DAY + 1:
            assert attempts.result_of(bench.connection, offer.job, offer.epoch) is None
            assert summary(bench, offer.job).site == "here"
        if after == 2 * DAY + 1:
            # Where it ran is still known.
            assert summary(bench, offer.job).site == "here"
            assert listing.attempts(bench.connection, offer.job)[0].site == "here"
    left = [(one.kind, sorted(one.names)) for one in retention_rows.pending_removals(bench.connection, 0, 99)]
    assert ("tries", [[1, 1], [2, 1], [3, 0]]) in left
    assert ("jobs", [1, 2, 3]) in left
    assert ("pilots", [["secret 0", "local"]]) in left
    assert ("inputs", ["a" * 64]) in left
    # No id is given twice, whatever has gone.
    highest = bench.pool.ids.jobs.last, bench.pool.ids.submissions.last  # type: ignore[attr-defined]
    bench.close()
    bench.open()
    assert (bench.pool.ids.jobs.last, bench.pool.ids.submissions.last) == highest  # type: ignore[attr-defined]
    assert bench.submit() == [highest[0] + 1]
    assert bench.pilot().id == paper.id + 2


def test_the_program_of_a_request_stays_until_the_request_has_ended(bench: Bench) -> None:
    """Its last step may submit its first job long after the upload."""
    program = Program(JobDescription(executable="run.sh"), (UploadedFile("run.sh", "b" * 64, 1),))
    request = RequestBench(bench).request(program=program)
    upload = "INSERT INTO uploads (owner, digest, size, uploaded) VALUES ('alice', ?, 1, ?)"
    bench.do(lambda tx: tx.connection.execute(upload, ("b" * 64, bench.now)))
    assert everything(bench, bench.now + 9 * DAY, KEPT) == {}
    end = "UPDATE requests SET state = 'completed' WHERE id = ?"
    bench.do(lambda tx: tx.connection.execute(end, (request,)))
    assert everything(bench, bench.now + 9 * DAY, KEPT) == {"uploads": 1}


def test_outputs_stay_with_jobs_that_have_not_left_the_hot_table(bench: Bench) -> None:
    """Else nobody would look at them again: how far it has come is one instant."""
    _, offer = ended(bench, {"stdout": "b3V0"})
    [outputs] = [rule for rule in RULES if rule.name == "outputs"]

    def cut() -> SliceResult:
        return bench.do(
            lambda tx: run_slice(
                tx.connection, outputs, [], bench.now, bench.now, retention.new_pace(Stopwatch(0.0))
            )
        )

    bench.now += 10.0
    assert cut().rows == 0
    bench.tidy()
    assert cut().rows == 1
    assert attempts.result_of(bench.connection, offer.job, offer.epoch) is None
    assert cut().rows == 0
    assert retention_rows.until(bench.connection, "outputs") > summary(bench, offer.job).ended  # type: ignore[operator]


def test_jobs_of_a_submission_in_the_making_may_be_old_already(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(making_module, "SIZE", 1)
    making = JobCreator(bench.accept(bench.prepared(3)).id)
    assert not bench.do(lambda tx: making.step(bench.pool, tx))
    bench.act("kill", 1)
    bench.now += 1.0
    assert bench.tidy() == 1
    assert bench.do(lambda tx: history.delete_expired(tx.connection, math.inf, 9)) == []
    while not bench.do(lambda tx: making.step(bench.pool, tx)):
        pass
    assert listing.state_totals(bench.connection) == {"Killed": 1, "Waiting": 2}


# --- slices


def rule_of(rows: int) -> Rule:
    left = [rows]

    def step(connection: Any, found: Any, before: float, most: int) -> int:
        done = min(most, left[0])
        left[0] -= done
        return done

    return Rule("made up", lambda policy: 0.0, step)


def sizes(bench: Bench, watch: Stopwatch, rows: int) -> list[int]:
    rule, pace, found = rule_of(rows), retention.new_pace(watch), []
    while True:
        done = bench.do(lambda tx: run_slice(tx.connection, rule, [], 0.0, 0.0, pace))
        found.append(done.rows)
        if done.last:
            return found


def test_slices_grow_while_they_are_quick_and_shrink_when_they_are_not(bench: Bench) -> None:
    assert sizes(bench, Stopwatch(SLICE / 10), 8 * FIRST_SIZE) == [
        FIRST_SIZE,
        2 * FIRST_SIZE,
        4 * FIRST_SIZE,
        FIRST_SIZE,
    ]
    assert sizes(bench, Stopwatch(0.0), 20_000)[-3:-1] == [MAX_SIZE, MAX_SIZE]
    assert sizes(bench, Stopwatch(SLICE * 1.25, SLICE), 300)[:3] == [
        FIRST_SIZE,
        FIRST_SIZE * 0.8,
        FIRST_SIZE * 0.8,
    ]
    assert set(sizes(bench, Stopwatch(SLICE * 1000), 1000)[1:-1]) == {MIN_SIZE}


def test_a_slice_that_is_full_is_not_the_last(bench: Bench) -> None:
    assert sizes(bench, Stopwatch(SLICE), FIRST_SIZE) == [FIRST_SIZE, 0]
    assert sizes(bench, Stopwatch(SLICE), 0) == [0]
    assert retention_rows.progress(bench.connection)["made up"].total == FIRST_SIZE


def test_rules_look_as_often_as_their_time_asks_for() -> None:
    periods = {rule.name: rule.period(KEPT) for rule in RULES}
    assert periods["hot"] == retention.PERIOD
    assert periods["jobs"] == retention.LONGEST_PERIOD
    short = parse(POLICY + "[retention]\noutputs = 5\nuploads = 600\n")
    assert {rule.name: rule.period(short) for rule in RULES} == {
        **{rule.name: retention.LONGEST_PERIOD for rule in RULES},
        "hot": retention.PERIOD,
        "outputs": retention.PERIOD,
        "handed_outputs": retention.PERIOD,
        "uploads": 60.0,
    }
