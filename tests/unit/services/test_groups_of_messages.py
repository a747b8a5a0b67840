"""Messages of pilots in one transaction do what they do one after another, each in its own."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from pilotage.core.errors import PilotageError
from pilotage.core.ids import PilotId
from pilotage.core.queues import index as index_module
from pilotage.services.pilots.exchange import PilotMessage, exchange_many, token_hash
from pilotage.store.tables import pilots as pilot_rows
from pilotage.store.writer.transaction import BatchableRequest, Transaction
from pilotage.wire.pilot import OfferedJob, Reference, Release
from tests.unit.services.bench import POLICY, Bench, dumped, finished

PILOTS = 3
LIMITED = POLICY + '\n[[limits]]\nattribute = "owner"\nvalue = "alice"\nsite = "here"\nrunning = 5\n'
JOBS = (
    "SELECT id, state, epoch, attempt, failures, own_failures, pilot_id, take_number, finished_epoch, finished_digest,"
    " exit_code, reason, not_before, started, ended FROM jobs ORDER BY id"
)
TRIES = (
    "SELECT job_id, epoch, attempt, pilot_id, started, ended, outcome, exit_code, failure FROM attempts"
    " ORDER BY job_id, epoch"
)
PILOT_ROWS = (
    "SELECT id, state, only_owner, take_number, lease_until, ended, finished, reason FROM pilots ORDER BY id"
)

which = st.integers(0, 999)
pilots = st.integers(0, PILOTS - 1)


def fails(_: Transaction) -> None:
    raise PilotageError("this one only")


class GroupsAgainstSingles(RuleBasedStateMachine):
    """Two stores are told the same. Jobs are given by their ids, so that both give the same."""

    def __init__(self) -> None:
        super().__init__()
        self.first, index_module.FIRST = index_module.FIRST, 1  # type: ignore[attr-defined]
        self.folder = tempfile.TemporaryDirectory(prefix="pilotage-groups-")
        self.sides: list[Bench] = []
        for name in ("together", "singly"):
            place = Path(self.folder.name) / name
            place.mkdir()
            self.sides.append(Bench(place, LIMITED))
        self.papers = [[bench.pilot(processors=4) for _ in range(PILOTS)] for bench in self.sides]
        self.letters: list[tuple[int, dict[str, Any]]] = []
        self.offers: list[tuple[int, OfferedJob]] = []
        self.jobs: list[int] = []
        self.numbers = [1] * PILOTS

    def teardown(self) -> None:
        index_module.FIRST = self.first  # type: ignore[attr-defined]
        for bench in self.sides:
            bench.close()
        self.folder.cleanup()

    @rule(count=st.integers(1, 12))
    def submit(self, count: int) -> None:
        one, two = (bench.submit(count, retries=1) for bench in self.sides)
        assert one == two
        self.jobs += one

    @rule(number=which, verb=st.sampled_from(["kill", "kill", "reschedule", "redo"]))
    def act(self, number: int, verb: str) -> None:
        if self.jobs:
            job = self.jobs[number % len(self.jobs)]
            one, two = (bench.act(verb, job) for bench in self.sides)
            assert one == two

    @rule(seconds=st.sampled_from([1.0, 25.0, 61.0, 301.0]))
    def time_passes(self, seconds: float) -> None:
        for bench in self.sides:
            bench.later(seconds)

    # --- what the next group says

    def write(self, pilot: int, **parts: Any) -> None:
        self.letters.append((pilot, parts))

    @rule(pilot=pilots, count=st.integers(1, 5), ahead=st.integers(0, 2), on=st.booleans())
    def take(self, pilot: int, count: int, ahead: int, on: bool) -> None:
        number = self.numbers[pilot] + on
        paper = self.papers[0][pilot]
        self.write(pilot, take=paper.asked(count, number=number, ahead=ahead, processors=4))

    @rule(
        job=which,
        verbs=st.lists(
            st.sampled_from(["confirm", "finish", "fail", "release", "hold"]), min_size=1, max_size=3
        ),
        behind=st.sampled_from([0, 0, 0, 0, 1, -1]),
        take=st.booleans(),
        by=st.sampled_from([None, None, None, 0, 1]),
    )
    def speak(self, job: int, verbs: list[str], behind: int, take: bool, by: int | None) -> None:
        """Of what was offered; at times of an epoch that was not, or of another pilot's job."""
        if not self.offers:
            return
        pilot, offer = self.offers[job % len(self.offers)]
        pilot = pilot if by is None else by
        reference = Reference(offer.job, offer.epoch + behind)
        parts: dict[str, Any] = {
            "confirms": [reference] if "confirm" in verbs else [],
            "releases": [Release(*vars(reference).values())] if "release" in verbs else [],
            "holding": [reference] if "hold" in verbs else [],
            "finishes": [finished(offer)] if "finish" in verbs else [],
        }
        if "fail" in verbs:
            parts["finishes"] = [*parts["finishes"], finished(offer, exit_code=1)]
        if take:
            parts["take"] = self.papers[0][pilot].asked(2, number=self.numbers[pilot], processors=4)
        self.write(pilot, **parts)

    @rule(job=which)
    def give_back_ask_and_speak_of_it(self, job: int) -> None:
        """The lowest job is given first, so mostly the same one again."""
        if self.offers:
            pilot, offer = self.offers[job % len(self.offers)]
            take = self.papers[0][pilot].asked(1, number=self.numbers[pilot], processors=4)
            self.write(pilot, releases=[Release(offer.job, offer.epoch)], take=take)
            self.write(pilot, confirms=[Reference(offer.job, offer.epoch)], finishes=[finished(offer)])

    @rule(pilot=pilots)
    def leave(self, pilot: int) -> None:
        self.write(pilot, leaving="idle")

    @rule(fails_too=st.sampled_from([False, False, True]), doubled=st.booleans())
    def send(self, fails_too: bool, doubled: bool) -> None:
        letters, self.letters = self.letters, []
        if doubled:
            letters = [letter for letter in letters for _ in range(2)]
        together, singly = self.sides
        answers = self.in_a_group(together, letters, fails_too)
        expected = [answer for letter in letters for answer in self.in_a_group(singly, [letter], False)]
        for (pilot, _), answer, other in zip(letters, answers, expected, strict=True):
            assert type(answer) is type(other), (answer, other)
            if isinstance(answer, PilotageError):
                continue
            # The pause between polls follows the number of pilots, which a later message of the group changes.
            answer.poll = other.poll
            assert dumped(answer) == dumped(other)
            self.offers += [(pilot, offer) for offer in answer.offers]
            self.numbers[pilot] = max(self.numbers[pilot], answer.take_number + 1)
        self.replace_those_that_left()

    def in_a_group(
        self, bench: Bench, letters: list[tuple[int, dict[str, Any]]], fails_too: bool
    ) -> list[Any]:
        papers = self.papers[self.sides.index(bench)]

        def handler(tx: Transaction, messages: Any) -> Any:
            return exchange_many(bench.pool, tx, messages, bench.now)

        messages: list[PilotMessage] = [
            (token_hash(papers[pilot].token), papers[pilot].request(**parts)) for pilot, parts in letters
        ]
        requests: list[Any] = [BatchableRequest(handler, message) for message in messages]
        if fails_too:
            requests.append(fails)
        return bench.together(*requests)[: len(letters)] if requests else []

    def replace_those_that_left(self) -> None:
        for pilot in range(PILOTS):
            if self.papers[0][pilot].row.state == "Done":
                for bench, papers in zip(self.sides, self.papers, strict=True):
                    papers[pilot] = bench.pilot(processors=4)
                self.numbers[pilot] = 1

    # --- what must be the same

    @invariant()
    def both_are_alike(self) -> None:
        together, singly = self.sides
        for sql in (JOBS, TRIES, PILOT_ROWS):
            one, two = (bench.connection.execute(sql).fetchall() for bench in self.sides)
            assert one == two
        for bench in self.sides:
            bench.check()
        for job in self.jobs:
            one, two = (
                [(e.at, e.kind, e.actor, e.old, e.new, e.epoch, e.detail) for e in bench.history(job)]
                for bench in self.sides
            )
            assert one == two
        assert together.pool.pilots.finished == singly.pool.pilots.finished
        assert together.pool.pilots.stalled == singly.pool.pilots.stalled


TestGroupsAgainstSingles = GroupsAgainstSingles.TestCase
TestGroupsAgainstSingles.settings = settings(max_examples=settings().max_examples, stateful_step_count=40)


def test_a_pilot_that_was_read_in_a_group_that_failed_is_read_again(bench: Bench) -> None:
    """It was read as an earlier request of the group had it, which did not come to be."""
    pilot = bench.pilot()
    bench.submit()
    bench.do(lambda tx: bench.pool.pilots.rows.clear())
    times = iter(range(2))

    def leaves_at_first(tx: Transaction) -> None:
        if next(times):
            raise PilotageError("not now")
        pilot_rows.update(tx.connection, PilotId(pilot.id), leave="cancel")

    _, answer, _ = bench.together(leaves_at_first, pilot.asking(pilot.request(take=pilot.asked())), fails)
    assert answer.leave == ""
    assert len(answer.offers) == 1
