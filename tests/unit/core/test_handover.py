"""The hand-over: its table against the rules in words, and a giver among takers whom the network fails."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import product

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from pilotage.core.handover import (
    TABLE,
    THE_PAYLOADS_OWN,
    Answer,
    Custody,
    Decision,
    Effect,
    Fence,
    Message,
    Relation,
    RetryDecision,
    after_failure,
    decide,
    outage_credit,
)

EVERYTHING = list(product(Custody, Message, Relation))
YES, NO = Answer.ACCEPTED, Answer.SUPERSEDED


def by_the_rules(custody: Custody, message: Message, relation: Relation) -> Decision:
    """The rules of the hand-over, said once more in other words than the code's."""
    # The giver's own messages carry no epoch.
    if message is Message.TAKE:
        return Decision(YES, Effect.OFFER) if custody is Custody.FREE else Decision(NO)
    if message is Message.KILL:
        return Decision(NO) if custody is Custody.FINAL else Decision(YES, Effect.END)
    if message is Message.EXPIRE:
        # Of an old lease, or of an item nobody has: nothing to do, and nobody to tell.
        if relation is not Relation.CURRENT:
            return Decision(YES)
        return Decision(
            YES, {Custody.OFFERED: Effect.FREE, Custody.HELD: Effect.RETRY}.get(custody, Effect.NONE)
        )
    # Any message of an old epoch changes nothing and tells the taker to stop; so does one never given, and
    # one about a try whose finish was taken; but the same finish again gets the same answer.
    if relation is not Relation.CURRENT:
        return Decision(YES if (message, relation) == (Message.FINISH, Relation.REPEATED) else NO)
    if custody is Custody.FINAL:
        return Decision(NO)
    if message is Message.FINISH:
        # Applied in any non-final state while its epoch is the highest ever given.
        return Decision(YES, Effect.APPLY)
    if message is Message.CONFIRM:
        return {
            Custody.FREE: Decision(NO),
            Custody.OFFERED: Decision(YES, Effect.HOLD),
            Custody.HELD: Decision(YES),
        }[custody]
    if message is Message.RELEASE:
        return Decision(YES, Effect.NONE if custody is Custody.FREE else Effect.FREE)
    if message is Message.RESUME:
        return Decision(YES, Effect.RESUME if custody is Custody.FREE else Effect.NONE)
    assert message is Message.KEEP
    return Decision(NO if custody is Custody.FREE else YES)


def test_the_table_is_total() -> None:
    assert set(TABLE) == set(EVERYTHING)
    assert len(TABLE) == len(Custody) * len(Message) * len(Relation)


@pytest.mark.parametrize("row", EVERYTHING, ids=" ".join)
def test_every_row_follows_the_rules_in_words(row: tuple[Custody, Message, Relation]) -> None:
    assert decide(*row) == by_the_rules(*row)


def test_superseded_never_changes_anything() -> None:
    assert all(decision.effect is Effect.NONE for decision in TABLE.values() if decision.answer is NO)


def test_nothing_but_a_take_raises_the_epoch_and_nothing_leaves_a_final_phase() -> None:
    for (custody, message, _), decision in TABLE.items():
        assert (decision.effect is Effect.OFFER) == (message is Message.TAKE and custody is Custody.FREE)
        if custody is Custody.FINAL:
            assert decision.effect is Effect.NONE


@pytest.mark.parametrize(
    ("fence", "epoch", "digest", "expected"),
    [
        (Fence(0), 0, "", Relation.NEVER_GIVEN),
        (Fence(0), 1, "", Relation.NEVER_GIVEN),
        (Fence(3), 0, "", Relation.OLD),
        (Fence(3), -1, "a", Relation.OLD),
        (Fence(3), 2, "a", Relation.OLD),
        (Fence(3), 3, "a", Relation.CURRENT),
        (Fence(3), 4, "a", Relation.NEVER_GIVEN),
        (Fence(3, 3, "a"), 3, "a", Relation.REPEATED),
        (Fence(3, 3, "a"), 3, "", Relation.REPEATED),
        (Fence(3, 3, "a"), 3, "b", Relation.CONTRADICTED),
        (Fence(3, 2, "a"), 3, "a", Relation.CURRENT),
        (Fence(3, 2, "a"), 2, "a", Relation.REPEATED),
        (Fence(3, 2, "a"), 2, "b", Relation.OLD),
        (Fence(3, 2, "a"), 2, "", Relation.OLD),
        (Fence(3, 2, "a"), 1, "a", Relation.OLD),
    ],
)
def test_how_an_epoch_relates(fence: Fence, epoch: int, digest: str, expected: Relation) -> None:
    assert fence.relation(epoch, digest) is expected


def test_the_retry_rule() -> None:
    for failure in ("lease-over", "node", "input", "output", "cut-off", "killed", "of a newer pilot"):
        tries = [after_failure(failure, n, most=2, own_retries=9) for n in (1, 2, 3, 4)]
        assert tries == [
            RetryDecision.AGAIN,
            RetryDecision.AGAIN,
            RetryDecision.GIVE_UP,
            RetryDecision.GIVE_UP,
        ]
    for failure in THE_PAYLOADS_OWN:
        assert after_failure(failure, 1, most=9, own_retries=0) is RetryDecision.GIVE_UP
        assert after_failure(failure, 1, most=0, own_retries=1) is RetryDecision.AGAIN
        assert after_failure(failure, 2, most=9, own_retries=1) is RetryDecision.GIVE_UP
    assert after_failure("node", 1, most=0, own_retries=9) is RetryDecision.GIVE_UP


@pytest.mark.parametrize(
    ("last", "now", "credit"),
    [
        (100, 100, 0),
        (100, 130, 0),  # as long as may be
        (100, 130.5, 30.5),  # the gap
        (100, 4100, 4000),
        (100, 70, 0),
        (100, 69, -31),  # the leases step back with the clock
        (4100, 100, -4000),
    ],
)
def test_outages_and_steps_of_the_clock_move_the_leases(last: float, now: float, credit: float) -> None:
    assert outage_credit(last, now, longest_gap=30) == credit


# --- one giver, several items and takers, and a network that loses, doubles, delays and reorders

ITEMS, TAKERS, MOST_FAILURES, LEASE = 3, 3, 2, 10


@dataclass
class Item:
    """What a giver saves of an item."""

    custody: Custody = Custody.FREE
    epoch: int = 0
    attempt: int = 0
    failures: int = 0
    taker: int | None = None
    finished_epoch: int = 0
    finished_digest: str = ""
    applied: list[int] = field(default_factory=list)
    ended: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Letter:
    """A message under way to the giver."""

    incarnation: int
    taker: int
    verb: Message
    item: int
    epoch: int
    digest: str = ""


class Giver(RuleBasedStateMachine):
    """Saves what `decide` says; what the takers do is up to the rules."""

    def __init__(self) -> None:
        super().__init__()
        self.incarnation = 1
        self.items = [Item() for _ in range(ITEMS)]
        self.leases = [0] * TAKERS
        self.now = 0
        self.mail: list[Letter] = []
        self.held: list[set[tuple[int, int]]] = [set() for _ in range(TAKERS)]
        self.answers: dict[tuple[int, int, str], Answer] = {}
        self.highest = [0] * ITEMS

    @initialize()
    def begin(self) -> None:
        self.take(0, 0)

    # The giver's side

    def save(self, number: int, effect: Effect, letter: Letter | None = None) -> None:
        item = self.items[number]
        if effect is Effect.OFFER:
            item.custody, item.epoch = Custody.OFFERED, item.epoch + 1
        elif effect is Effect.HOLD:
            item.custody, item.attempt = Custody.HELD, item.attempt + 1
        elif effect is Effect.FREE:
            item.custody, item.taker = Custody.FREE, None
        elif effect is Effect.RETRY:
            self.fail(item, "lease-over")
        elif effect is Effect.APPLY:
            assert letter is not None
            item.finished_epoch, item.finished_digest = letter.epoch, letter.digest
            if letter.digest.startswith("bad"):
                self.fail(item, "node")
            else:
                item.applied.append(letter.epoch)
                item.custody, item.taker = Custody.FINAL, None
        elif effect is Effect.END:
            item.ended.append("killed")
            item.custody, item.taker = Custody.FINAL, None

    def fail(self, item: Item, failure: str) -> None:
        if item.custody is not Custody.FREE:
            item.failures += 1
        again = (
            after_failure(failure, item.failures, most=MOST_FAILURES, own_retries=0) is RetryDecision.AGAIN
        )
        item.custody, item.taker = (Custody.FREE if again else Custody.FINAL), None
        if not again:
            item.ended.append(failure)

    def decided(self, number: int, verb: Message, epoch: int, digest: str = "") -> Decision:
        item = self.items[number]
        fence = Fence(item.epoch, item.finished_epoch, item.finished_digest)
        return decide(item.custody, verb, fence.relation(epoch, digest))

    @rule(number=st.integers(0, ITEMS - 1), taker=st.integers(0, TAKERS - 1))
    def take(self, number: int, taker: int) -> None:
        item = self.items[number]
        before = item.epoch
        decision = self.decided(number, Message.TAKE, item.epoch)
        self.save(number, decision.effect)
        if decision.answer is YES:
            assert item.epoch == before + 1
            item.taker = taker
            self.leases[taker] = self.now + LEASE
            self.held[taker].add((number, item.epoch))

    @rule(number=st.integers(0, ITEMS - 1))
    def kill(self, number: int) -> None:
        self.save(number, self.decided(number, Message.KILL, self.items[number].epoch).effect)

    @rule(seconds=st.integers(1, 2 * LEASE))
    def time_passes(self, seconds: int) -> None:
        self.now += seconds
        for number, item in enumerate(self.items):
            if item.taker is not None and self.leases[item.taker] < self.now:
                self.save(number, self.decided(number, Message.EXPIRE, item.epoch).effect)

    @rule()
    def restored_from_a_backup(self) -> None:
        """Only the incarnation changes here: what it fences are the letters under way."""
        self.incarnation += 1

    # The takers' side

    @rule(
        taker=st.integers(0, TAKERS - 1),
        verb=st.sampled_from(
            [Message.CONFIRM, Message.RELEASE, Message.FINISH, Message.FINISH, Message.KEEP]
        ),
        which=st.integers(0, 99),
        outcome=st.sampled_from(["good", "bad", "good, said otherwise"]),
        copies=st.integers(1, 2),
    )
    def writes(self, taker: int, verb: Message, which: int, outcome: str, copies: int) -> None:
        known = sorted(self.held[taker])
        if known:
            item, epoch = known[which % len(known)]
            digest = outcome if verb is Message.FINISH else ""
            self.mail += [Letter(self.incarnation, taker, verb, item, epoch, digest)] * copies

    @rule(which=st.integers(0, 99))
    def arrives(self, which: int) -> None:
        if self.mail:
            self.deliver(self.mail.pop(which % len(self.mail)))

    @rule(which=st.integers(0, 99))
    def is_lost(self, which: int) -> None:
        if self.mail:
            self.mail.pop(which % len(self.mail))

    def deliver(self, letter: Letter) -> Answer:
        item = self.items[letter.item]
        if letter.incarnation != self.incarnation:
            return NO
        self.leases[letter.taker] = self.now + LEASE
        before = (item.custody, item.epoch, item.attempt, item.failures, list(item.applied))
        decision = self.decided(letter.item, letter.verb, letter.epoch, letter.digest)
        self.save(letter.item, decision.effect, letter)
        if decision.answer is NO:
            assert before == (item.custody, item.epoch, item.attempt, item.failures, item.applied)
            self.held[letter.taker].discard((letter.item, letter.epoch))
        if letter.verb is Message.FINISH:
            key = (letter.item, letter.epoch, letter.digest)
            if self.answers.get(key) is YES and item.finished_epoch == letter.epoch:
                # Taken before, and still the last one taken: the same answer, and nothing happens.
                assert decision == Decision(YES)
            if decision.answer is YES:
                self.answers[key] = YES
        return decision.answer

    # What must always hold

    @invariant()
    def epochs_only_rise(self) -> None:
        for number, item in enumerate(self.items):
            assert item.epoch >= self.highest[number]
            self.highest[number] = item.epoch

    @invariant()
    def at_most_one_end_of_each_item(self) -> None:
        for item in self.items:
            assert len(item.applied) + len(item.ended) == (1 if item.custody is Custody.FINAL else 0)
            assert item.failures <= MOST_FAILURES + 1
            assert item.attempt <= item.epoch
            assert (item.taker is not None) == (item.custody in (Custody.OFFERED, Custody.HELD))

    def teardown(self) -> None:
        """With a good taker and a good network everything ends."""
        self.mail.clear()
        self.time_passes(100 * LEASE)
        for number, item in enumerate(self.items):
            if item.custody is Custody.FINAL:
                continue
            assert item.custody is Custody.FREE
            self.take(number, 0)
            for verb, digest in ((Message.CONFIRM, ""), (Message.FINISH, "good"), (Message.FINISH, "good")):
                assert self.deliver(Letter(self.incarnation, 0, verb, number, item.epoch, digest)) is YES
        assert all(item.custody is Custody.FINAL for item in self.items)
        self.at_most_one_end_of_each_item()


TestGiver = Giver.TestCase
