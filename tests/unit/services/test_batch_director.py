"""Pilots of a batch system under every fault: none is lost for ever, none doubled, and all jobs are done."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from pilotage.core.errors import PilotageError, Unreachable
from pilotage.core.pilots.handover import SubmissionPhase
from pilotage.outside.batch.adapter import BatchSubmission, Shape
from pilotage.outside.batch.submission import BatchListing, NativeState, SubmissionFailed
from pilotage.services.director.ce_director import CeDirector
from pilotage.services.director.ce_record import FULL_PERIOD, switch_ce
from pilotage.services.director.ce_status import summaries
from pilotage.services.director.demand import post_orders
from pilotage.services.director.iteration_orders import IterationOrders
from pilotage.services.director.listing_comparison import compare
from pilotage.services.director.observing import begin_observation, note_unchanged, observe_some
from pilotage.services.director.ordering import last_seen, order_pilots
from pilotage.services.director.submissions import BatchSteps, SubmissionIntent
from pilotage.services.director.submitting import acknowledged, failed, refused, released, releasing
from pilotage.store.tables import ces, pilot_submissions, pilots
from pilotage.store.tables.ces import CeSwitch
from pilotage.store.writer.transaction import Transaction
from pilotage.wire.ces import CeSummary
from tests.paper_batch import PaperBatch, PaperJob
from tests.unit.services.bench import NODE, POLICY, Bench, Paper
from tests.unit.services.iterations import run_iteration

MAX_WAITING, MAX_RUNNING = 3, 5
SETTLE = 120.0
SHAPE = Shape(processors=1, memory=0, wall=60.0)
BATCH_POLICY = (
    POLICY
    + f"""
[ces.batch]
site = "here"
type = "slurm"
owners = "any"
lease = 300
heartbeat = 10
idle = 1
wall = 100000
pilot_types = ["private"]
max_waiting = {MAX_WAITING}
settle = {SETTLE}
max_running = {MAX_RUNNING}
max_failures = 0
[director]
demand = "matched"
"""
)
SUBMIT_FAULTS = (
    "",
    "full",
    "refused",
    "unreached",
    "lost-before",
    "lost-after",
    "release-lost-before",
    "release-lost-after",
    "release-refused",
)
CRASHES = ("", "after the intent", "after the submission", "after its id", "after the release")


class Crash(Exception):
    """The server ends at this point."""


class Site:
    """A server's director of one CE, the batch system, and its pilots."""

    def __init__(self, folder: Path, max_failures: int = 0) -> None:
        policy = BATCH_POLICY.replace("max_failures = 0", f"max_failures = {max_failures}")
        self.bench = Bench(folder, policy)
        self.batch = PaperBatch()
        self.papers: dict[str, tuple[PaperJob, Paper]] = {}
        self.director = self._new_director()

    def _new_director(self) -> CeDirector:
        return CeDirector("batch", IterationOrders(NODE.platform))

    def cycle(self, crash: str = "") -> None:
        """One cycle of the duty; `crash`: where the server ends and starts again."""
        try:
            self._cycle(crash)
        except Crash:
            self.bench.crash()
            self.director = self._new_director()

    def _cycle(self, crash: str) -> None:
        bench, batch = self.bench, self.batch
        listing, listed = batch.list_pilots(), bench.now
        steps = bench.do(lambda tx: self._observe(tx, listing, listed))
        for stamp in steps.release:
            self._release(stamp, crash)
        batch.cancel(steps.cancel)
        if steps.cancel_tasks:
            batch.cancel_tasks(steps.cancel_tasks, listing.epoch)
        if not listing.complete:
            return
        for intent in bench.do(self._order):
            self._reach("after the intent", crash)
            self._submit(intent, crash)

    def _observe(self, tx: Transaction, listing: BatchListing, listed: float) -> BatchSteps:
        """The duty's steps, in one transaction."""
        director = self.director
        begin_observation(director, tx, listing, listed)
        if not listing.complete:
            return BatchSteps()
        comparison = compare(tx.connection, director.ce, director.unchanged, listing, listed)
        steps = observe_some(
            director, self.bench.pool, tx, comparison, comparison.observations, self.bench.now
        )
        note_unchanged(director, tx, comparison)
        return steps.with_cancelled(comparison.cancel)

    def _order(self, tx: Transaction) -> list[SubmissionIntent]:
        """An iteration over all CEs, and the CE's own cycle that carries it out."""
        pool, now = self.bench.pool, self.bench.now
        pool.ces.nodes.setdefault("batch", NODE)
        post_orders(pool, tx, run_iteration(pool, tx.connection, pool.rng, now))
        return order_pilots(self.director, pool, tx, now)

    def _reach(self, point: str, crash: str) -> None:
        if point == crash:
            raise Crash

    def _submit(self, intent: SubmissionIntent, crash: str) -> None:
        bench, director = self.bench, self.director
        try:
            order = intent.order
            submission = BatchSubmission(intent.stamp, order.pilots, SHAPE, intent.secret, order.properties)
            receipt = self.batch.submit(submission)
        except SubmissionFailed as error:
            refusal = error
            bench.do(lambda tx: failed(director, bench.pool, tx, intent.stamp, refusal, bench.now))
            return
        self._reach("after the submission", crash)
        bench.do(lambda tx: acknowledged(director, bench.pool, tx, intent.stamp, receipt))
        self._reach("after its id", crash)
        self._release(intent.stamp, crash)

    def _release(self, stamp: str, crash: str) -> None:
        bench, director = self.bench, self.director
        if not bench.do(lambda tx: releasing(tx, stamp)):
            return
        try:
            self.batch.release([stamp])
        except Unreachable:
            return
        except SubmissionFailed as error:
            reason = error.reason
            if bench.do(lambda tx: refused(director, bench.pool, tx, stamp, reason, bench.now)):
                self.batch.cancel([stamp])
            return
        self._reach("after the release", crash)
        bench.do(lambda tx: released(director, bench.pool, tx, stamp))

    def start_pilots(self) -> None:
        """Every batch job that waits starts and calls home."""
        for job in self.batch.start():
            try:
                self.papers[job.batch_id] = job, Paper(self.bench, job.script, job.index)
            except PilotageError:
                self.batch.end(job.batch_id)  # It was given up, and leaves.

    def work(self) -> None:
        """Every pilot runs one job; a pilot without any says goodbye and ends."""
        for batch_id, (job, paper) in list(self.papers.items()):
            offers = paper.take()
            if offers:
                paper.confirm(offers[0])
                paper.finish(offers[0])
            else:
                paper.send(leaving="idle")
                self.end(batch_id, job)

    def end(self, batch_id: str, job: PaperJob) -> None:
        """The batch job of a pilot ends."""
        del self.papers[batch_id]
        if any(known.batch_id == batch_id and known.stamp == job.stamp for known in self.batch.jobs):
            self.batch.end(batch_id)

    def summaries(self) -> list[CeSummary]:
        return summaries(self.bench.pool.policy, self.bench.connection, self.bench.now)

    def live_pilots(self) -> int:
        return len(pilots.with_batch_jobs(self.bench.connection, "batch"))

    def settle(self) -> None:
        """Without faults everything comes to its end."""
        for _ in range(60):
            self.batch.fault = ""
            self.bench.later(SETTLE / 2)
            self.bench.do(self.director.memory.end_pause)
            self.cycle()
            self.start_pilots()
            self.work()
            waiting = self.bench.connection.execute(
                "SELECT count(*) FROM jobs WHERE state <> 'Done'"
            ).fetchone()
            if not waiting[0] and not self.live_pilots() and not self.batch.jobs:
                break
        self.cycle()

    def close(self) -> None:
        self.bench.check()
        self.bench.end()


def states(site: Site) -> dict[str, int]:
    rows = site.bench.connection.execute("SELECT state, count(*) FROM jobs GROUP BY state")
    return dict(rows.fetchall())


def assert_settled(site: Site) -> None:
    site.settle()
    assert set(states(site)) <= {"Done"}
    assert site.live_pilots() == 0
    assert site.batch.jobs == []
    assert pilot_submissions.live(site.bench.connection, "batch") == []


def test_pilots_come_for_waiting_jobs_within_the_caps(site: Site) -> None:
    site.bench.submit(20)
    site.cycle()
    assert [job.state for job in site.batch.jobs] == [NativeState.WAITING] * MAX_WAITING
    site.cycle()
    assert len(site.batch.jobs) == MAX_WAITING
    site.start_pilots()
    site.cycle()
    site.start_pilots()
    site.cycle()
    assert len(site.batch.jobs) == MAX_RUNNING
    assert_settled(site)


def test_pilots_are_bound_to_an_owner_and_equals_share_a_submission(site: Site) -> None:
    site.bench.submit(1)
    site.bench.submit(1)
    site.bench.submit(1, owner="bob")
    site.cycle()
    rows = pilots.live(site.bench.connection, "batch")
    assert sorted(row.only_owner or "" for row in rows) == ["alice", "alice", "bob"]
    assert len({job.stamp for job in site.batch.jobs}) == 2
    # The back-off counts pilots of one submission as one event.
    counted = {row.id: last_seen(row, draining=False).submission for row in rows}
    assert set(counted.values()) == {job.stamp for job in site.batch.jobs}
    assert_settled(site)


def test_a_refused_submission_pauses_the_ce_ever_longer(site: Site) -> None:
    site.bench.submit(1)
    pauses = []
    for _ in range(4):
        site.batch.fault = "refused"
        site.cycle()
        assert site.live_pilots() == 0
        assert site.director.memory.trouble == "refused"
        pauses.append(site.director.memory.not_before - site.bench.now)
        site.cycle()
        assert site.batch.fault == "", "no call within the pause"
        site.bench.later(pauses[-1])
    assert pauses == [10.0, 20.0, 40.0, 80.0]
    assert_settled(site)


def test_waiting_pilots_that_are_cancelled_together_cause_one_pause(site: Site) -> None:
    site.bench.submit(20)
    site.cycle()
    pauses = []
    for _ in range(3):
        assert site.live_pilots() == MAX_WAITING
        for job in site.batch.jobs:
            site.batch.change(job.stamp, NativeState.WAITING, NativeState.ENDED)
        site.cycle()
        assert site.live_pilots() == 0
        site.batch.jobs.clear()
        pauses.append(site.director.memory.not_before - site.bench.now)
        site.bench.later(pauses[-1])
        site.cycle()
    assert pauses == [40.0, 80.0, 160.0], "the third pilot begins the pause; later ones double it once"
    assert_settled(site)


def test_a_cycle_counts_live_pilots_without_reading_their_rows(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    site.bench.submit(20)
    site.cycle()
    site.start_pilots()
    rows = pilots.live(site.bench.connection, "batch")
    with monkeypatch.context() as patched:
        patched.setattr(pilots, "live", None)
        site.cycle()
    note = site.bench.pool.provisioning.directors["batch"]
    assert (note.pilots, note.used) == (len(rows), sum(row.processors for row in rows))
    assert ces.live_totals(site.bench.connection, "batch").waiting == note.ordered > 0
    assert_settled(site)


def test_a_refused_release_ends_the_submission_and_pauses_the_ce(site: Site) -> None:
    site.bench.submit(1)
    site.batch.fault = "release-refused"
    site.cycle()
    assert site.batch.jobs == []
    assert site.live_pilots() == 0
    assert site.director.memory.trouble == "release-refused"
    assert site.director.memory.alike == 1
    site.cycle()
    assert site.batch.jobs == [], "no call within the pause"
    assert_settled(site)


def test_a_refused_release_of_running_pilots_ends_none(site: Site) -> None:
    site.bench.submit(2)
    site.cycle()
    site.start_pilots()
    stamp = site.batch.jobs[0].stamp
    bench = site.bench
    assert not bench.do(lambda tx: refused(site.director, bench.pool, tx, stamp, "no", bench.now))
    assert site.live_pilots() == len(site.batch.jobs) > 0
    assert_settled(site)


def test_a_full_batch_system_is_no_failure(site: Site) -> None:
    site.bench.submit(1)
    for _ in range(15):
        site.batch.fault = "full"
        site.cycle()
        assert site.batch.fault == "", "each try reaches the batch system: the CE is never stopped"
        assert site.director.memory.not_before - site.bench.now == FULL_PERIOD, "the wait never grows"
        [ce] = [row for row in site.summaries() if row.name == "batch"]
        assert (ce.state, ce.reason, ce.alike) == ("full", "full", 0)
        assert ces.failed_pilots(site.bench.connection, "batch", 5) == [], "nobody is to blame"
        site.bench.later(FULL_PERIOD)
    assert_settled(site)


def test_a_batch_system_with_room_for_fewer_pilots_gets_these(site: Site) -> None:
    site.bench.submit(20)
    site.batch.most = 2
    for _ in range(5):
        site.cycle()
    assert len(site.batch.jobs) == 2
    assert site.director.memory.not_before == site.bench.now + FULL_PERIOD
    site.batch.most = None
    site.bench.later(FULL_PERIOD)
    site.cycle()
    assert len(site.batch.jobs) == MAX_WAITING
    assert_settled(site)


def test_a_batch_system_that_was_certainly_not_reached_is_no_doubt_and_no_failure(site: Site) -> None:
    site.bench.submit(1)
    pauses = []
    for _ in range(12):
        site.batch.fault = "unreached"
        site.cycle()
        assert site.batch.fault == "", "each try reaches the adapter: the CE is never stopped"
        assert site.live_pilots() == 0
        assert pilot_submissions.live(site.bench.connection, "batch") == []
        [ce] = [row for row in site.summaries() if row.name == "batch"]
        assert (ce.state, ce.reason, ce.alike) == ("unreachable", "unreached (asked 0 s ago)", 0)
        assert ces.failed_pilots(site.bench.connection, "batch", 5) == [], "nobody is to blame"
        assert site.director.next_listing == 0.0, "the next cycle lists"
        pauses.append(site.director.memory.not_before - site.bench.now)
        site.bench.later(pauses[-1])
    assert pauses == sorted(pauses)
    assert pauses[-1] >= 3600.0, "no tight loop, even if listings go through"
    site.cycle()
    [ce] = [row for row in site.summaries() if row.name == "batch"]
    assert ce.state == "active"
    assert len(site.batch.jobs) == 1
    assert_settled(site)


def test_a_pilot_that_ends_after_the_batch_system_was_full_begins_no_pause(site: Site) -> None:
    site.bench.submit(2)
    site.batch.most = 1
    for _ in range(3):
        site.cycle()
    assert site.director.memory.is_paused(site.bench.now)
    site.bench.later(FULL_PERIOD)
    [job] = site.batch.jobs
    site.batch.end(job.batch_id)
    site.cycle()
    assert not site.director.memory.is_paused(site.bench.now)
    site.batch.most = None
    assert_settled(site)


def test_a_submission_in_doubt_is_adopted_or_given_up_but_never_repeated_blindly(site: Site) -> None:
    site.bench.submit(1)
    site.batch.fault = "lost-after"
    site.cycle()
    [job] = site.batch.jobs
    site.cycle()
    assert [(job.stamp, job.state) for job in site.batch.jobs] == [(job.stamp, NativeState.WAITING)]
    assert_settled(site)
    site.bench.submit(1)
    site.batch.fault = "lost-before"
    site.cycle()
    for _ in range(3):
        site.cycle()
        assert site.batch.jobs == [], "two listings at once prove nothing"
        assert site.live_pilots() == 1
    site.bench.later(SETTLE)
    site.cycle()
    assert site.live_pilots() == 0
    assert_settled(site)


def test_submissions_that_are_lost_together_cause_one_pause(site: Site) -> None:
    for owner in ("alice", "bob"):
        site.bench.submit(1, owner=owner)
    pauses = []
    for _ in range(2):
        site.cycle("after the intent")
        assert len(pilot_submissions.live(site.bench.connection, "batch")) == 2
        site.cycle()
        site.bench.later(SETTLE)
        site.cycle()
        assert site.live_pilots() == 0
        pauses.append(site.director.memory.not_before - site.bench.now)
        site.bench.later(pauses[-1])
    assert pauses == [10.0, 20.0]
    assert_settled(site)


def test_a_submission_in_doubt_that_has_run_and_ended_is_adopted(site: Site) -> None:
    site.bench.submit(1)
    site.cycle()
    known, site.batch.jobs = site.batch.jobs, []
    site.cycle()
    [row] = pilot_submissions.live(site.bench.connection, "batch")
    assert (row.phase, row.releases) == (SubmissionPhase.IN_DOUBT, 1)
    site.batch.jobs = known
    for job in known:
        site.batch.change(job.stamp, NativeState.WAITING, NativeState.ENDED)
    site.cycle()
    assert row.stamp not in {live.stamp for live in pilot_submissions.live(site.bench.connection, "batch")}
    site.batch.jobs = [job for job in site.batch.jobs if job.state is not NativeState.ENDED]
    assert_settled(site)


def test_a_double_is_cancelled(site: Site) -> None:
    site.bench.submit(1)
    site.cycle()
    [job] = site.batch.jobs
    [row] = pilots.live(site.bench.connection, "batch")
    assert row.batch_id == job.batch_id
    site.batch.submit(BatchSubmission(job.stamp, 1, SHAPE, job.script))
    site.cycle()
    assert [known.batch_id for known in site.batch.jobs] == [job.batch_id]
    assert_settled(site)


@pytest.mark.parametrize("crash", ["after the submission", "after its id"])
def test_a_double_of_a_submission_in_doubt_never_starts(site: Site, crash: str) -> None:
    """The batch system did the submission twice: the second is cancelled at the first listing that shows it."""
    site.bench.submit(1)
    site.cycle(crash)
    [job] = site.batch.jobs
    site.batch.submit(BatchSubmission(job.stamp, 1, SHAPE, job.script))
    release = site.batch.release

    def only_one(stamps: Sequence[str]) -> None:
        assert [one.batch_id for one in site.batch.jobs if one.stamp in stamps] == [job.batch_id]
        release(stamps)

    site.batch.release = only_one  # type: ignore[method-assign]
    for _ in range(2):
        site.cycle()
    site.batch.release = release  # type: ignore[method-assign]
    assert [(one.batch_id, one.state) for one in site.batch.jobs if one.stamp == job.stamp] == [
        (job.batch_id, NativeState.WAITING)
    ]
    site.bench.later(1.0)
    assert_settled(site)


def test_an_incomplete_listing_moves_nothing(site: Site) -> None:
    site.bench.submit(2)
    site.cycle()
    site.batch.jobs.clear()
    for _ in range(3):
        site.batch.fault = "listing-fails"
        site.bench.later(SETTLE)
        site.cycle()
    first = {row.stamp for row in pilots.live(site.bench.connection, "batch")}
    assert len(first) == 2
    site.cycle()
    assert first == {row.stamp for row in pilots.live(site.bench.connection, "batch")}, (
        "one listing is no proof"
    )
    site.bench.later(SETTLE)
    site.cycle()
    assert not first & {row.stamp for row in pilots.live(site.bench.connection, "batch")}
    assert_settled(site)


def test_a_submission_that_was_given_up_is_cancelled_when_it_comes_back(site: Site) -> None:
    site.bench.submit(1)
    site.batch.fault = "lost-before"
    site.cycle()
    [row] = pilot_submissions.live(site.bench.connection, "batch")
    site.cycle()
    site.bench.later(SETTLE)
    site.cycle()
    site.batch.submit(BatchSubmission(row.stamp, 1, SHAPE, "a secret"))
    site.cycle()
    assert all(job.stamp != row.stamp for job in site.batch.jobs)
    assert_settled(site)


def test_jobs_of_the_account_that_are_no_pilots_are_left_alone(site: Site) -> None:
    site.batch.submit(BatchSubmission("somebody's", 2, SHAPE, ""))
    site.batch.submit(BatchSubmission("pilotage-of another server", 1, SHAPE, ""))
    site.bench.submit(1)
    for _ in range(3):
        site.cycle()
        site.bench.later(SETTLE)
    assert sum(job.stamp in ("somebody's", "pilotage-of another server") for job in site.batch.jobs) == 3


def switch(site: Site) -> CeSwitch:
    return ces.by_name(site.bench.connection, "batch").switch


def test_a_restart_does_not_end_a_pause(site: Site) -> None:
    site.bench.submit(1)
    site.batch.fault = "refused"
    site.cycle()
    until = site.director.memory.not_before
    site.bench.crash()
    site.director = site._new_director()
    site.batch.fault = "refused"
    site.cycle()
    assert site.batch.fault == "refused", "no call within the pause"
    assert (site.director.memory.not_before, site.director.memory.trouble) == (until, "refused")
    site.bench.later(until - site.bench.now)
    site.cycle()
    assert site.batch.fault == ""
    assert site.director.memory.failures == 2
    assert_settled(site)


@pytest.fixture
def strict(tmp_path: Path) -> Any:
    """Three failures alike stop submission."""
    made = Site(tmp_path, max_failures=3)
    yield made
    made.close()


def refuse(site: Site) -> None:
    site.batch.fault = "refused"
    site.bench.later(4000.0)
    site.cycle()


def test_failures_alike_stop_submission_until_it_is_enabled(strict: Site) -> None:
    strict.bench.submit(2)
    for expected in (CeSwitch.ON, CeSwitch.ON, CeSwitch.STOPPED):
        refuse(strict)
        assert switch(strict) is expected
    assert ces.by_name(strict.bench.connection, "batch").switch_reason == "3 failures in a row: refused"
    refuse(strict)
    assert strict.batch.fault == "refused", "nothing is submitted"
    strict.bench.crash()
    strict.director = strict._new_director()
    refuse(strict)
    assert strict.batch.fault == "refused", "not after a restart either"
    bench = strict.bench
    bench.do(
        lambda tx: switch_ce(
            bench.pool.ids, tx, "batch", CeSwitch.ON, by="ada", reason="mended", now=bench.now
        )
    )
    rows = bench.connection.execute(
        "SELECT actor, detail FROM events WHERE kind = 'ce' ORDER BY id"
    ).fetchall()
    assert rows == [
        ("server", "CE batch: stopped: 3 failures in a row: refused"),
        ("user:ada", "CE batch: enabled: mended"),
    ]
    strict.batch.fault = ""
    strict.cycle()
    assert strict.director.memory.trouble == ""
    assert len(strict.batch.jobs) == 2, "at once, without the rest of a pause"
    assert_settled(strict)


def test_pilots_that_never_call_home_stop_submission_and_others_do_not(strict: Site) -> None:
    strict.bench.submit(9)
    strict.cycle()
    strict.start_pilots()
    strict.work()
    for batch_id, (job, _) in list(strict.papers.items()):
        strict.end(batch_id, job)
    strict.bench.later(400.0)
    strict.cycle()
    assert switch(strict) is CeSwitch.ON, "they had jobs"
    for _ in range(4):
        if switch(strict) is CeSwitch.ON:
            strict.batch.jobs.clear()
            strict.bench.later(4000.0)
            strict.cycle()
    row = ces.by_name(strict.bench.connection, "batch")
    assert row.switch is CeSwitch.STOPPED
    assert row.switch_reason.endswith("its batch job has ended without a word")
    strict.bench.do(
        lambda tx: switch_ce(
            strict.bench.pool.ids, tx, "batch", CeSwitch.ON, by="ada", reason="", now=strict.bench.now
        )
    )
    assert_settled(strict)


def test_pilots_whose_nodes_are_unfit_stop_submission(strict: Site) -> None:
    strict.bench.submit(9)
    for _ in range(3):
        assert switch(strict) is CeSwitch.ON
        strict.bench.later(4000.0)
        strict.cycle()
        strict.start_pilots()
        for batch_id, (job, paper) in list(strict.papers.items()):
            paper.send(leaving="cannot isolate payloads: no user namespaces", unfit=True)
            strict.end(batch_id, job)
        strict.cycle()
        if switch(strict) is CeSwitch.STOPPED:
            break
    row = ces.by_name(strict.bench.connection, "batch")
    assert row.switch is CeSwitch.STOPPED
    assert "failures in a row: called home and had no job: cannot isolate payloads" in row.switch_reason
    strict.bench.do(
        lambda tx: switch_ce(
            strict.bench.pool.ids, tx, "batch", CeSwitch.ON, by="ada", reason="", now=strict.bench.now
        )
    )
    assert_settled(strict)


class Faults(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.TemporaryDirectory()
        self.site = Site(Path(self.folder.name))

    @rule(count=st.integers(1, 4), owner=st.sampled_from(["alice", "bob"]))
    def submit(self, count: int, owner: str) -> None:
        self.site.bench.submit(count, owner=owner)

    @rule(fault=st.sampled_from([*SUBMIT_FAULTS, "listing-fails"]), crash=st.sampled_from(CRASHES))
    def cycle(self, fault: str, crash: str) -> None:
        self.site.batch.fault = fault
        self.site.cycle(crash)
        self.site.batch.fault = ""

    @rule(seconds=st.sampled_from([1.0, 30.0, SETTLE, 1000.0]))
    def later(self, seconds: float) -> None:
        self.site.bench.later(seconds)

    @rule()
    def start(self) -> None:
        self.site.start_pilots()

    @precondition(lambda self: self.site.papers)
    @rule()
    def work(self) -> None:
        self.site.work()

    @precondition(lambda self: self.site.papers)
    @rule(data=st.data())
    def die(self, data: st.DataObject) -> None:
        """A pilot ends without a word."""
        batch_id = data.draw(st.sampled_from(sorted(self.site.papers)))
        job, _ = self.site.papers[batch_id]
        self.site.end(batch_id, job)

    @precondition(lambda self: self.site.batch.jobs)
    @rule(data=st.data())
    def remove(self, data: st.DataObject) -> None:
        """The administrator of the site removes a batch job."""
        job = data.draw(st.sampled_from(self.site.batch.jobs))
        self.site.batch.end(job.batch_id)
        self.site.papers.pop(job.batch_id, None)

    @rule()
    def save_state(self) -> None:
        self.site.batch.save_state()

    @rule()
    def crash_controller(self) -> None:
        self.site.batch.crash()
        running = {job.batch_id for job in self.site.batch.jobs if job.state is NativeState.RUNNING}
        self.site.papers = {key: paper for key, paper in self.site.papers.items() if key in running}

    @invariant()
    def the_caps_hold(self) -> None:
        assert self.site.live_pilots() <= MAX_RUNNING

    def teardown(self) -> None:
        try:
            assert_settled(self.site)
        finally:
            self.site.close()
            self.folder.cleanup()


TestFaults = Faults.TestCase
TestFaults.settings = settings(max_examples=settings().max_examples, stateful_step_count=30)
