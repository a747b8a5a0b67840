"""The whole pool among pilots whose messages are lost, doubled and reordered, with crashes in between."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from pilotage.core.errors import Forbidden, NotAuthenticated, PilotageError
from pilotage.core.jobs.states import FINAL
from pilotage.core.policy import parse
from pilotage.core.shares.turns import next_owner
from pilotage.services.jobs.relocation import Place, relocate
from pilotage.services.policy.apply import apply_policy
from pilotage.services.submission import job_creation as making_module
from pilotage.services.submission.job_creation import JobCreator
from pilotage.store.tables import submissions
from pilotage.wire.pilot import ExchangeRequest, OfferedJob, Reference, Release
from tests.unit.services.bench import POLICY, Bench, Paper, finished

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

pilots = st.integers(0, PILOTS - 1)
which = st.integers(0, 999)
networks = st.sampled_from(["good", "good", "good", "doubled", "answer lost", "delayed"])


class AnyOrder(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.chunk, making_module.SIZE = making_module.SIZE, 7
        self.folder = tempfile.TemporaryDirectory(prefix="pilotage-any-order-")
        self.bench = Bench(Path(self.folder.name), LIMITED)
        self.papers: list[Paper] = [self.bench.pilot(processors=2) for _ in range(PILOTS)]
        self.offers: list[list[OfferedJob]] = [[] for _ in range(PILOTS)]
        self.mail: list[tuple[int, str, ExchangeRequest]] = []
        self.makings: list[JobCreator] = []
        self.accepted: set[int] = set()

    @initialize()
    def begin(self) -> None:
        self.bench.sign_of_life()

    def pick(self, items: list[Any], number: int) -> Any:
        return items[number % len(items)]

    # People

    @rule(
        count=st.sampled_from([1, 2, 30]),
        owner=st.sampled_from(["alice", "bob"]),
        priority=st.integers(0, 2),
        cpu=st.sampled_from([0, 5000]),
        retries=st.integers(0, 1),
    )
    def submit(self, count: int, owner: str, priority: int, cpu: int, retries: int) -> None:
        prepared = self.bench.prepared(
            count, owner=owner, user_priority=priority, cpu_time=cpu, retries=retries
        )
        submission = self.bench.accept(prepared)
        self.accepted.update(range(submission.first_job, submission.first_job + submission.count))
        self.makings.append(JobCreator(submission.id))

    @rule(number=which)
    def make_a_chunk(self, number: int) -> None:
        if self.makings:
            making = self.pick(self.makings, number)
            if self.bench.do(lambda tx: making.step(self.bench.pool, tx)):
                self.makings.remove(making)

    @rule(number=which)
    def kill(self, number: int) -> None:
        if self.accepted:
            self.bench.act("kill", self.pick(sorted(self.accepted), number))

    @rule(number=which, verb=st.sampled_from(["reschedule", "reschedule", "delete"]))
    def act_on_what_has_ended(self, number: int, verb: str) -> None:
        ended = sorted(self.states(*FINAL))
        if ended:
            self.bench.act(verb, self.pick(ended, number))

    @rule(
        numbers=st.lists(which, min_size=1, max_size=4),
        sites=st.sampled_from(["here", "there", "here there"]),
        priority=st.integers(0, 2),
        fails=st.booleans(),
    )
    def move_to_other_queues(self, numbers: list[int], sites: str, priority: int, fails: bool) -> None:
        jobs = [self.pick(sorted(self.accepted), number) for number in numbers if self.accepted]
        place = Place(frozenset(sites.split()), priority)
        requests: list[Callable[..., Any]] = [
            lambda tx: relocate(self.bench.pool, tx, jobs, place, actor="a", reason="", now=self.bench.now)
        ]
        self.bench.together(*requests, *([failing] if fails else []))

    @rule(hot=st.sampled_from([0.0, 0.0, 30.0]), most=st.sampled_from([1, 3, 1000]))
    def move_old_jobs(self, hot: float, most: int) -> None:
        self.bench.now += 0.001
        self.bench.tidy(hot, most)

    @rule()
    def change_the_policy(self) -> None:
        bench = self.bench
        text = OTHER if bench.pool.policy.matching.rule == "dirac" else LIMITED
        policy = parse(text)
        bench.do(lambda tx: apply_policy(bench.pool, tx, policy, text, by="a", reason="", now=bench.now))

    # Pilots and their network

    @rule(number=pilots, count=st.integers(1, 3), ahead=st.integers(0, 2), network=networks)
    def take(self, number: int, count: int, ahead: int, network: str) -> None:
        paper = self.papers[number]
        self.write(number, network, take=paper.asked(count, ahead=ahead, processors=2))

    @rule(
        number=pilots,
        job=which,
        verb=st.sampled_from(["confirm", "confirm", "confirm", "release", "finish", "finish", "hold"]),
        network=networks,
    )
    def speak(self, number: int, job: int, verb: str, network: str) -> None:
        if not self.offers[number]:
            return
        offer = self.pick(self.offers[number], job)
        reference = Reference(offer.job, offer.epoch)
        if verb == "confirm":
            self.write(number, network, confirms=[reference])
        elif verb == "release":
            self.write(number, network, releases=[Release(offer.job, offer.epoch)])
        elif verb == "hold":
            self.write(number, network, holding=[reference])
        else:
            content = self.pick([{}, {"exit_code": 1}, {"exit_code": None, "failure": "node"}], job // 7)
            self.write(number, network, finishes=[finished(offer, **content)])

    @rule(number=pilots, job=which, network=networks)
    def speak_of_several_things(self, number: int, job: int, network: str) -> None:
        if len(self.offers[number]) >= 2:
            one, two = self.pick(self.offers[number], job), self.pick(self.offers[number], job + 1)
            self.write(
                number,
                network,
                finishes=[finished(one)],
                releases=[Release(two.job, two.epoch)],
                confirms=[Reference(one.job, one.epoch), Reference(two.job, two.epoch)],
                take=self.papers[number].asked(2, processors=2),
            )

    def write(self, number: int, network: str, **parts: Any) -> None:
        paper = self.papers[number]
        letter = (number, paper.token, paper.request(**parts))
        if network == "delayed":
            self.mail.append(letter)
            return
        self.answered(number, self.ask(*letter), lost=network == "answer lost")
        if network in ("doubled", "answer lost"):
            self.deliver(letter)
        if network == "doubled":
            self.mail.append(letter)

    @rule(number=which, copies=st.integers(1, 2))
    def arrives(self, number: int, copies: int) -> None:
        if self.mail:
            letter = self.mail.pop(number % len(self.mail))
            for _ in range(copies):
                self.deliver(letter)

    @rule(number=which)
    def arrives_but_its_answer_is_lost(self, number: int) -> None:
        if self.mail:
            pilot, token, request = self.pick(self.mail, number)
            self.answered(pilot, self.ask(pilot, token, request), lost=True)

    @rule(number=which)
    def is_lost(self, number: int) -> None:
        if self.mail:
            self.mail.pop(number % len(self.mail))

    @rule(numbers=st.lists(which, min_size=2, max_size=4), fails=st.booleans())
    def arrive_together(self, numbers: list[int], fails: bool) -> None:
        """In one group; if one request of it fails, the others are carried out again."""
        letters = [self.pick(self.mail, number) for number in numbers] if self.mail else []
        requests: list[Callable[..., Any]] = [self.request_of(*letter) for letter in letters]
        if fails:
            requests.append(failing)
        answers = self.bench.together(*requests)
        for letter, answer in zip(letters, answers, strict=False):
            self.answered(letter[0], answer)

    def deliver(self, letter: tuple[int, str, ExchangeRequest]) -> None:
        self.answered(letter[0], self.ask(*letter))

    def ask(self, number: int, token: str, request: ExchangeRequest) -> Any:
        try:
            return self.bench.do(self.request_of(number, token, request))
        except NotAuthenticated as error:
            return error

    def request_of(self, number: int, token: str, request: ExchangeRequest) -> Callable[..., Any]:
        paper = self.papers[number]
        current, paper.token = paper.token, token
        asking = paper.asking(request)
        paper.token = current
        return asking

    def answered(self, number: int, answer: Any, lost: bool = False) -> None:
        if isinstance(answer, BaseException):
            assert isinstance(answer, NotAuthenticated), answer
            return
        if lost:
            return
        paper = self.papers[number]
        if answer.take_number:
            paper.number = max(paper.number, answer.take_number + 1)
        for offer in answer.offers:
            assert offer.payload.owner == self.bench.pilot_row(paper.id).only_owner
            if offer not in self.offers[number]:
                self.offers[number].append(offer)

    @rule(number=pilots)
    def starts_again(self, number: int) -> None:
        """Its batch job was restarted: another nonce, and what it knew is gone."""
        paper = self.papers[number]
        paper.enrol(f"nonce {self.bench.writes}")
        paper.number = 1
        self.offers[number].clear()

    @rule(number=pilots)
    def leaves_and_another_comes(self, number: int) -> None:
        self.papers[number].send(leaving="idle")
        try:
            self.papers[number].enrol("again")
        except Forbidden:
            pass
        else:
            raise AssertionError("a pilot that has left came back")
        self.papers[number] = self.bench.pilot(processors=2)
        self.offers[number].clear()

    # Time and trouble

    @rule(seconds=st.sampled_from([1.0, 15.0, 25.0, 61.0, 301.0]))
    def time_passes(self, seconds: float) -> None:
        self.bench.later(seconds)

    @rule(number=which)
    def crash(self, number: int) -> None:
        """In the middle of a transaction that is never committed."""
        under_way = [self.request_of(*self.pick(self.mail, number))] if self.mail else []
        self.bench.crash(*[quietly(request) for request in under_way])
        self.makings = [JobCreator(one) for one in submissions.with_unmade_jobs(self.bench.connection)]

    @rule(seconds=st.sampled_from([1000.0, -200.0]))
    def outage(self, seconds: float) -> None:
        """The server was away, or its clock stepped; the lease duty begins with a sign of life."""
        self.bench.sign_of_life()
        held = self.states("Running", "Matched")
        self.bench.now += seconds
        self.bench.sign_of_life()
        self.bench.duties()
        assert self.states("Running", "Matched", "Stalled") >= held

    def states(self, *wanted: str) -> set[int]:
        everything = "SELECT id, state FROM jobs UNION ALL SELECT id, state FROM history"
        rows = self.bench.connection.execute(everything).fetchall()
        return {job for job, state in rows if state in wanted}

    @invariant()
    def everything_adds_up(self) -> None:
        self.bench.check()

    def teardown(self) -> None:
        try:
            self.drain()
        finally:
            making_module.SIZE = self.chunk
            self.bench.close()
            self.folder.cleanup()

    def drain(self) -> None:
        """With good pilots, every accepted job ends."""
        bench = self.bench
        for making in self.makings:
            while not bench.do(lambda tx, making=making: making.step(bench.pool, tx)):
                pass
        everywhere = Place(frozenset({"here"}), 1)
        for job in sorted(self.accepted):
            bench.do(
                lambda tx, job=job: relocate(
                    bench.pool, tx, [job], everywhere, actor="a", reason="", now=bench.now
                )
            )
        workers = [bench.pilot(only_owner=owner, processors=2) for owner in ("alice", "bob")]
        for _ in range(400):
            if len(self.states(*FINAL)) == len(self.accepted):
                break
            bench.later(30.0)
            for place, worker in enumerate(workers):
                if owner := next_owner(worker.row.leave):
                    # It is another owner's turn: the next one is started for them.
                    worker.send(leaving="told to leave")
                    worker = workers[place] = bench.pilot(only_owner=owner, processors=2)
                for offer in worker.take(2, processors=2):
                    assert worker.confirm(offer) == "accepted"
                    assert worker.finish(offer) == "accepted"
            if not self.states("Waiting", "Rescheduled"):
                bench.now += 300.0
                for worker in workers:
                    worker.send()
        bench.check()
        assert self.states(*FINAL) == self.accepted
        assert all(not entry.waiting for entry in bench.pool.queues.index.entries.values())


def failing(_: object) -> None:
    raise PilotageError("this one only")


def quietly(request: Callable[..., Any]) -> Callable[..., Any]:
    def ask(tx: Any) -> None:
        with contextlib.suppress(NotAuthenticated):
            request(tx)

    return ask


TestAnyOrder = AnyOrder.TestCase
TestAnyOrder.settings = settings(max_examples=settings().max_examples, stateful_step_count=40)
