"""Any request may fail after its body and be carried out again: memory is then as if it had never failed.

After each step what the pool keeps in memory equals a pool that is made anew from the store; and a request that
failed leaves behind all that no store knows as it was.
"""

from __future__ import annotations

import secrets
import tempfile
from collections.abc import Callable
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from random import Random
from typing import Any, cast

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from pilotage.core.ids import PilotId
from pilotage.core.policy import parse
from pilotage.core.shares.correction import Corrections
from pilotage.outside.batch.adapter import Receipt
from pilotage.outside.batch.submission import NativeState
from pilotage.services.director.ce_director import CeDirector
from pilotage.services.director.local_orders import LocalOrders
from pilotage.services.director.ordering import order_pilots
from pilotage.services.director.submitting import acknowledged, refused
from pilotage.services.jobs.actions import act
from pilotage.services.pilots import leases
from pilotage.services.pilots.enrolment import enrol
from pilotage.services.pilots.lifecycle import end_absent_pilot
from pilotage.services.policy.apply import apply_policy
from pilotage.services.pool import index_loading as filling_module
from pilotage.services.pool.index_loading import load_slice, open_pool
from pilotage.services.pool.state import Pool
from pilotage.services.shares import corrections
from pilotage.services.submission.accept import accept
from pilotage.services.submission.chunked import accept_chunk, open_submission
from pilotage.services.submission.job_creation import ChunkRows as ChunkRows
from pilotage.services.submission.job_creation import JobCreator, encoded, new_pace
from pilotage.services.why import wait_history
from pilotage.store.tables import jobs as job_rows
from pilotage.store.tables import pilots as pilot_rows
from pilotage.store.tables import submissions
from pilotage.store.tables.wait_reasons import ReasonRow
from pilotage.store.writer.transaction import Transaction
from pilotage.wire.pilot import EnrolRequest, ExchangeRequest, OfferedJob, Reference, Release
from tests.unit.services.bench import HOME_OWNER, NODE, POLICY, Bench, Paper, finished
from tests.unit.services.local_answers import take_in
from tests.writer_guard import as_writer

PILOTS = 3
LIMITED = (
    POLICY
    + """
[[limits]]
attribute = "owner"
value = "bob"
site = "here"
running = 2
[[limits]]
attribute = "processors"
value = "1"
ce = "local"
delay = 1.0
burst = 5
"""
)
OTHER = LIMITED.replace("[jobs]", '[matching]\nrule = "proportional"\ncpu_buckets = [1000, 20000]\n[jobs]')

Request = Callable[[Transaction], Any]
which = st.integers(0, 999)
pilots = st.integers(0, PILOTS - 1)
fates = st.sampled_from(["well", "fails", "fails", "in a group", "before commit"])


class Fault(Exception):
    """Raised on purpose."""


def waiting_of(pool: Pool) -> dict[int, dict[int, int]]:
    """Waiting jobs by queue and UserPriority, as the index counts them."""
    counted = {
        queue: {weight: part.count for weight, part in entry.levels.items() if part.count}
        for queue, entry in pool.queues.index.entries.items()
    }
    return {queue: counts for queue, counts in counted.items() if counts}


def kept_in_memory(pool: Pool, director: CeDirector, now: float) -> dict[str, Any]:
    """All that a failed request must leave as it was, caches of rows apart."""
    # A clock that stepped back moves it back too, whenever somebody looks.
    meters = {
        key: replace(m, since=min(m.since, now))
        for key, m in pool.offers.limits.limiter._meters.items()
        if not m.fresh
    }
    return {
        "waiting": waiting_of(pool),
        "policy": (pool.server.policy_version, pool.policy, pool.queues.index.rule),
        "limits": meters,
        "running": {
            key: meter.running for key, meter in pool.offers.limits.limiter._meters.items() if meter.running
        },
        "seen": dict(pool.pilots.last_seen),
        "unconfirmed": dict(pool.pilots.unconfirmed),
        "stalled": set(pool.pilots.stalled),
        "finished": dict(pool.pilots.finished),
        "corrections": (pool.shares.corrections, pool.shares.corrected_at),
        "recorded reasons": None
        if pool.queues.recorded_reasons is None
        else dict(pool.queues.recorded_reasons),
        "filling": None
        if pool.queues.loading is None
        else (pool.queues.loading.last_job, pool.queues.loading.counted_to),
        "numbers": (pool.ids.jobs.last, pool.ids.submissions.last),  # type: ignore[attr-defined]
        # A request that failed has used its record lately all the same, so records of equal use may change places.
        "kinds": sorted(
            ((kind.offer, kind.takes, kind.given) for kind in pool.offers.stats.recent(0.0)), key=repr
        ),
        "asked for": (dict(pool.provisioning.directors), dict(pool.ces.nodes), pool.server.draining),
        "director": (
            asdict(cast(LocalOrders, director.rule)),
            asdict(director.memory),
            asdict(director.back_off),
            dict(director.unchanged),
        ),
    }


def rebuilt(bench: Bench) -> Pool:
    """The pool that a server would make of the store now."""
    pool = bench.pool
    bench.connection.begin()
    try:
        with as_writer():
            return open_pool(
                Transaction(bench.connection),
                pool.policy,
                version=pool.server.policy_version,
                incarnation=pool.server.incarnation,
                rng=Random(1),
                secrets=secrets,
                home_owner=HOME_OWNER,
            )
    finally:
        bench.connection.rollback()


def same_as_rebuilt(bench: Bench) -> None:
    pool, fresh = bench.pool, rebuilt(bench)
    assert pool.queues.loading is None
    assert waiting_of(pool) == waiting_of(fresh)
    for queue, identity in pool.queues.identities.items():
        assert fresh.queues.identities[queue] == identity
    for queue, entry in pool.queues.index.entries.items():
        assert entry.identity == fresh.queues.identities[queue]
        _heads_are_the_first_that_wait(bench, queue, entry)
    assert [
        (row.owner, row.group, row.waiting, row.queues) for row in pool.queues.index.priorities.table()
    ] == [(row.owner, row.group, row.waiting, row.queues) for row in fresh.queues.index.priorities.table()]
    shares = [row.share for row in pool.queues.index.priorities.table()]
    fresh.queues.index.priorities.correct(pool.shares.corrections.groups, pool.shares.corrections.owners)
    assert shares == pytest.approx([row.share for row in fresh.queues.index.priorities.table()])
    assert {key: m.running for key, m in pool.offers.limits.limiter._meters.items() if m.running} == {
        key: m.running for key, m in fresh.offers.limits.limiter._meters.items() if m.running
    }
    assert pool.pilots.stalled >= fresh.pilots.stalled
    _pilots_are_the_rows(bench, pool)
    for id_, facts in pool.jobs.submissions.facts.items():
        row = submissions.by_id(bench.connection, id_)
        assert row is not None
        known = replace(
            facts.row, count=row.count, state=row.state, touched=row.touched, first_job=row.first_job
        )
        assert known == row
    assert pool.ids.jobs.last >= fresh.ids.jobs.last  # type: ignore[attr-defined]
    assert pool.ids.submissions.last >= fresh.ids.submissions.last  # type: ignore[attr-defined]


def _heads_are_the_first_that_wait(bench: Bench, queue: int, entry: Any) -> None:
    sql = (
        "SELECT id, epoch, last_event FROM jobs"
        " WHERE queue_id = ? AND user_priority = ? AND state = 'Waiting' AND id <= ? ORDER BY id"
    )
    for weight, part in entry.levels.items():
        stored = bench.connection.execute(sql, (queue, weight, part.read_up_to)).fetchall()
        assert [(head[0], head[2], head[3]) for head in part.heads] == [tuple(row) for row in stored]


def _pilots_are_the_rows(bench: Bench, pool: Pool) -> None:
    for hashed, pilot in pool.pilots.rows.items():
        row = pilot_rows.by_token(bench.connection, hashed)
        assert row is not None
        assert replace(pilot, jobs=[]) == replace(row, jobs=[])
    for pilot in pilot_rows.live(bench.connection):
        held = job_rows.of_pilots(bench.connection, [pilot.id])
        offered = [job.id for job in held if str(job.state) == "Matched"]
        if offered:
            since = job_rows.offer_times(bench.connection, offered)
            assert pool.pilots.unconfirmed[pilot.id] <= min(since.values())
        cached = pool.pilots.rows.get(pilot.token_hash or "")
        assert cached is None or {job.id for job in held} <= set(cached.jobs)


def test_a_failed_take_leaves_the_recorded_offer_as_it_was(tmp_path: Path) -> None:
    """Equivalent offers of two pilots share a record, which shows the latest."""
    bench = Bench(tmp_path)
    bench.submit(3)
    first, second = bench.pilot(), bench.pilot()
    first.hold()
    [before] = bench.pool.offers.stats.recent(bench.now)
    bench.now += 10.0
    request = second.request(take=second.asked(cpu_left=90000.0))
    [fault] = bench.together(_then_fail(second.asking(request)))
    assert isinstance(fault, Fault)
    [after] = bench.pool.offers.stats.recent(bench.now)
    assert (after.offer, after.origin, after.refreshed) == (before.offer, before.origin, before.refreshed)
    bench.do(second.asking(request))
    [after] = bench.pool.offers.stats.recent(bench.now)
    assert (after.offer.cpu_time, after.takes) == (90000.0, 2)
    bench.end()


class Failing(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.TemporaryDirectory(prefix="pilotage-failing-")
        self.bench = Bench(Path(self.folder.name), LIMITED)
        self.bench.sign_of_life()
        self.papers: list[Paper] = [self.bench.pilot(processors=2) for _ in range(PILOTS)]
        self.offers: list[list[OfferedJob]] = [[] for _ in range(PILOTS)]
        self.director = CeDirector("local", LocalOrders(replace(NODE, processors=3)), local=True)
        self.ordered: list[Any] = []
        self.jobs: set[int] = set()
        self.streams: dict[int, int] = {}
        self.keys = 0

    @property
    def pool(self) -> Pool:
        return self.bench.pool

    def carry_out(self, fate: str, request: Request, refusals: tuple[type[Exception], ...] = ()) -> Any:
        """The answer of a request that is met by such a fate first. None: it was refused."""
        if fate != "well":
            before = kept_in_memory(self.pool, self.director, self.bench.now)
            requests = {
                "fails": [_then_fail(request)],
                "before commit": [_fail_in_the_end(request)],
                "in a group": [_fail],
            }[fate]
            if fate == "in a group":
                done, fault = self.bench.together(request, *requests)
                assert isinstance(fault, Fault)
                return self._unless_refused(done, refusals)
            [fault] = self.bench.together(*requests)
            assert isinstance(fault, (Fault, *refusals)), fault
            after = kept_in_memory(self.pool, self.director, self.bench.now)
            assert after == before
            self.bench.check()
            same_as_rebuilt(self.bench)
        [done] = self.bench.together(request)
        return self._unless_refused(done, refusals)

    def _unless_refused(self, done: Any, refusals: tuple[type[Exception], ...]) -> Any:
        if isinstance(done, BaseException):
            assert isinstance(done, refusals), done
            return None
        return done

    def pick(self, items: Any, number: int) -> Any:
        items = sorted(items) if isinstance(items, (set, dict)) else items
        return items[number % len(items)]

    # People

    @rule(
        fate=fates,
        count=st.sampled_from([1, 2, 20]),
        owner=st.sampled_from(["alice", "bob"]),
        priority=st.integers(0, 2),
        cpu=st.sampled_from([0, 5000]),
        name=st.sampled_from(["a", "b"]),
    )
    def submit(self, fate: str, count: int, owner: str, priority: int, cpu: int, name: str) -> None:
        bench = self.bench
        prepared = bench.prepared(
            count, owner=owner, user_priority=priority, cpu_time=cpu, retries=1, job_name=name
        )

        def request(tx: Transaction) -> Any:
            submission = accept(self.pool, tx, prepared, bench.now)
            # Jobs are given out in the same group that makes them.
            JobCreator(submission.id).step(self.pool, tx)
            self.pool.jobs.submissions.load(tx, [submission.id])
            return submission

        submission = self.carry_out(fate, request)
        bench.make(submission)
        self.jobs |= set(range(submission.first_job, submission.first_job + submission.count))

    @rule(fate=fates, owner=st.sampled_from(["alice", "bob"]), number=which)
    def submit_in_chunks(self, fate: str, owner: str, number: int) -> None:
        bench = self.bench
        if owner == "alice" or not self.streams:
            self.keys += 1
            prepared = replace(
                bench.prepared(2, owner="alice", key=f"key {self.keys}"), rows=(), expected=None
            )
            opened = self.carry_out(fate, lambda tx: open_submission(self.pool, tx, prepared, bench.now))
            self.streams[opened.id] = 0
            return
        id_ = self.pick(self.streams, number)
        given = ChunkRows(tuple(encoded([[place] for place in range(5)])), 5)
        place = self.streams[id_]
        chunk = self.carry_out(
            fate,
            lambda tx: accept_chunk(self.pool, tx, "alice", id_, place, given, bench.now, new_pace()),
        )
        assert chunk.made == 5
        self.streams[id_] += 1
        self.jobs |= set(range(chunk.first_job, chunk.first_job + 5))

    @rule(fate=fates, number=which, verb=st.sampled_from(["kill", "reschedule", "redo", "delete"]))
    def act(self, fate: str, number: int, verb: str) -> None:
        if self.jobs:
            ids = [self.pick(self.jobs, number), self.pick(self.jobs, number // 3)]
            self.carry_out(
                fate,
                lambda tx: act(
                    self.pool, tx, verb, dict.fromkeys(ids), actor="user:alice", reason="", now=self.bench.now,
                    dry_run=False,
                ),
            )  # fmt: skip

    @rule(fate=fates)
    def change_the_policy(self, fate: str) -> None:
        text = OTHER if self.pool.policy.matching.rule == "dirac" else LIMITED
        policy = parse(text)
        self.carry_out(
            fate,
            lambda tx: apply_policy(self.pool, tx, policy, text, by="a", reason="", now=self.bench.now),
        )

    # Pilots

    def speak(self, fate: str, number: int, request: ExchangeRequest) -> None:
        paper = self.papers[number]
        answer = self.carry_out(fate, paper.asking(request))
        if answer.take_number:
            paper.number = max(paper.number, answer.take_number + 1)
        self.offers[number] += [offer for offer in answer.offers if offer not in self.offers[number]]

    @rule(fate=fates, number=pilots, count=st.integers(1, 3), ahead=st.integers(0, 2))
    def take(self, fate: str, number: int, count: int, ahead: int) -> None:
        paper = self.papers[number]
        self.speak(fate, number, paper.request(take=paper.asked(count, ahead=ahead, processors=2)))

    @rule(
        fate=fates,
        number=pilots,
        job=which,
        verbs=st.lists(st.sampled_from(["confirm", "confirm", "finish", "fail", "release"]), max_size=3),
        takes=st.booleans(),
    )
    def report(self, fate: str, number: int, job: int, verbs: list[str], takes: bool) -> None:
        paper = self.papers[number]
        parts: dict[str, list[Any]] = {"confirms": [], "finishes": [], "releases": []}
        for place, verb in enumerate(verbs if self.offers[number] else []):
            offer = self.pick(self.offers[number], job + place)
            if verb == "confirm":
                parts["confirms"].append(Reference(offer.job, offer.epoch))
            elif verb == "release":
                parts["releases"].append(Release(offer.job, offer.epoch))
            else:
                content = {"exit_code": 1} if verb == "fail" else {}
                parts["finishes"].append(finished(offer, **content))
        if takes:
            parts["take"] = paper.asked(2, processors=2)  # type: ignore[assignment]
        self.speak(fate, number, paper.request(**parts))

    @rule(fate=fates, number=pilots, again=st.booleans())
    def starts_again_or_leaves(self, fate: str, number: int, again: bool) -> None:
        paper = self.papers[number]
        if not again:
            self.carry_out(fate, paper.asking(paper.request(leaving="idle")))
            self.papers[number] = self.bench.pilot(processors=2)
        else:
            self.keys += 1
            request = EnrolRequest(secret=paper.secret, index=0, nonce=f"n{self.keys}", hostname="n1")
            answer = self.carry_out(fate, lambda tx: enrol(self.pool, tx, request, self.bench.now))
            paper.token, paper.number = answer.token, 1
        self.offers[number].clear()

    # Duties and time

    @rule(
        fate=fates,
        seconds=st.sampled_from([0.0, 1.0, 15.0, 25.0, 61.0, 301.0]),
        order=st.permutations(range(4)),
    )
    def time_passes(self, fate: str, seconds: float, order: list[int]) -> None:
        self.bench.now += seconds
        duties = (leases.expire, leases.lapse_offers, leases.requeue_due, leases.note_stalled)
        for place in order:
            self.carry_out(fate, lambda tx, duty=duties[place]: duty(self.pool, tx, self.bench.now))

    @rule(fate=fates, seconds=st.sampled_from([4.0, 1000.0, -200.0]), begins=st.booleans())
    def outage(self, fate: str, seconds: float, begins: bool) -> None:
        self.bench.sign_of_life()
        self.bench.now += seconds
        self.carry_out(fate, lambda tx: leases.heartbeat(self.pool, tx, self.bench.now, begins=begins))

    @rule(fate=fates, number=which, what=st.sampled_from(["started", "aborted", "gone"]))
    def the_director(self, fate: str, number: int, what: str) -> None:
        bench, director = self.bench, self.director
        self.ordered += self.carry_out(fate, lambda tx: order_pilots(director, self.pool, tx, bench.now))
        if not self.ordered:
            return
        one = self.pick(self.ordered, number)
        if what == "started":
            receipt = Receipt("1:2", ("1:2",))
            self.carry_out(fate, lambda tx: acknowledged(director, self.pool, tx, one.stamp, receipt))
        elif what == "aborted":
            self.carry_out(fate, lambda tx: refused(director, self.pool, tx, one.stamp, "no fork", bench.now))
        else:
            end = partial(take_in, state=NativeState.ENDED, now=bench.now, only=one.members)
            self.carry_out(fate, lambda tx: end(self.pool, tx, director))
            paper = self.papers[number % PILOTS].row
            if paper.ended is None:
                self.carry_out(fate, lambda tx: self.lose(tx, paper.id))
        self.replace_ended_pilots()

    def lose(self, tx: Transaction, pilot: PilotId) -> None:
        row = pilot_rows.by_id(tx.connection, pilot)
        assert row is not None
        end_absent_pilot(self.pool, tx, row, "", self.bench.now)

    def replace_ended_pilots(self) -> None:
        for number, paper in enumerate(self.papers):
            if self.bench.pilot_row(paper.id).state in ("Done", "Aborted", "Deleted"):
                self.papers[number] = self.bench.pilot(processors=2)
                self.offers[number].clear()

    @rule(fate=fates, factor=st.sampled_from([0.5, 2.0]))
    def correct_shares(self, fate: str, factor: float) -> None:
        found = Corrections({"physics": factor}, {("alice", "physics"): factor})
        self.carry_out(fate, lambda tx: corrections.apply_corrections(self.pool, tx, found, self.bench.now))

    @rule(fate=fates, reason=st.sampled_from(["", "no-pilot"]))
    def note_why_queues_wait(self, fate: str, reason: str) -> None:
        if self.pool.queues.recorded_reasons is None:
            self.bench.set("queues", recorded_reasons=wait_history.last_reasons(self.bench.connection))
        rows = [ReasonRow(queue, self.bench.now, reason, "") for queue in self.pool.queues.index.entries]
        self.carry_out(fate, lambda tx: wait_history.write(self.pool.queues, tx, rows))

    @rule(fate=fates)
    def forget_empty_queues(self, fate: str) -> None:
        def request(tx: Transaction) -> None:
            submissions.mark_empty_queues(tx.connection, self.bench.now - 1.0)
            gone = submissions.delete_empty_queues(tx.connection, self.bench.now)
            self.pool.forget_queues(tx, gone)

        self.carry_out(fate, request)

    @rule(fates=st.lists(fates, min_size=6, max_size=6), number=which)
    def the_server_starts_and_is_asked_while_it_counts(self, fates: list[str], number: int) -> None:
        """Requests that change jobs which are not counted yet share a group with the counting."""
        bench, before = self.bench, filling_module.SLICE
        filling_module.SLICE = max(1, len(self.jobs) // 3)
        in_force = bench.pool.shares.corrections, bench.pool.shares.corrected_at
        try:
            bench.pool = bench.do(lambda tx: self._opened(tx))
            bench.do(lambda _: corrections._set_corrections(bench.pool, *in_force))
            self.director = CeDirector("local", LocalOrders(replace(NODE, processors=3)), local=True)
            for place, fate in enumerate(fates):
                ids = [self.pick(self.jobs, number + place)] if self.jobs else []

                def request(tx: Transaction, ids: list[int] = ids) -> None:
                    verb = "kill" if number % 2 else "reschedule"
                    act(self.pool, tx, verb, ids, actor="a", reason="", now=bench.now, dry_run=False)
                    load_slice(self.pool, tx)

                self._while_counting(fate, request)
            while not bench.do(lambda tx: load_slice(self.pool, tx)):
                pass
        finally:
            filling_module.SLICE = before

    def _opened(self, tx: Transaction) -> Pool:
        pool = self.pool
        return open_pool(
            tx, pool.policy, version=pool.server.policy_version, incarnation=pool.server.incarnation, rng=Random(3),
            secrets=secrets, home_owner=HOME_OWNER, load=False,
        )  # fmt: skip

    def _while_counting(self, fate: str, request: Request) -> None:
        if fate == "well":
            self.bench.do(request)
        elif fate == "in a group":
            self.bench.together(request, _fail)
        else:
            self.bench.together(_then_fail(request))

    @invariant()
    def memory_is_what_the_store_says(self) -> None:
        self.bench.check()
        same_as_rebuilt(self.bench)

    def teardown(self) -> None:
        self.bench.close()
        self.folder.cleanup()


def _fail(_: Transaction) -> None:
    raise Fault


def _then_fail(request: Request) -> Request:
    def failing(tx: Transaction) -> None:
        request(tx)
        raise Fault

    return failing


def _fail_in_the_end(request: Request) -> Request:
    def failing(tx: Transaction) -> None:
        request(tx)
        tx.before_commit("fault", lambda: _fail(tx))

    return failing


TestFailing = Failing.TestCase
TestFailing.settings = settings(max_examples=settings().max_examples, stateful_step_count=25)
