"""The recorded offers: which are kept, and which are removed."""

from __future__ import annotations

from dataclasses import replace

from pilotage.core.queues.fit import Condition, Offer
from pilotage.core.queues.identity import QueueIdentity
from pilotage.core.queues.offer_history import MAX_RECORDS, PILOTS, RECENT, KnownOffer, OfferStats, refusals

OFFER = Offer("here", "ce1", 5000.0, processors=4, memory=4000)
QUEUE = QueueIdentity("alice", "physics", cpu_time=5000, memory=8000)


def key_of(offer: Offer) -> Offer:
    return replace(offer, cpu_time=offer.cpu_time // 1000, memory=0)


def note(stats: OfferStats[str], offer: Offer, pilot: int, given: bool, now: float, origin: str = "") -> None:
    stats.refresh(key_of(offer), offer, origin, now).record_take(pilot, f"n{pilot}", given, now)


def test_a_kind_counts_its_takes_and_keeps_the_last_offer() -> None:
    stats = OfferStats[str]()
    note(stats, OFFER, 1, True, 10.0, "first")
    note(stats, replace(OFFER, cpu_time=5900.0, memory=3000), 2, False, 20.0, "second")
    note(stats, replace(OFFER, cpu_time=600.0), 1, False, 30.0)
    large, small = stats.recent(40.0)
    assert (large.takes, large.given, large.first, large.last) == (2, 1, 10.0, 20.0)
    assert (large.offer.memory, large.origin) == (3000, "second")
    assert list(large.pilots.items()) == [(1, 10.0), (2, 20.0)]
    assert (small.takes, small.given) == (1, 0)


def test_recent_records_do_not_change_with_later_takes() -> None:
    stats = OfferStats[str]()
    note(stats, OFFER, 1, True, 10.0)
    [before] = stats.recent(10.0)
    note(stats, OFFER, 2, True, 11.0)
    assert (before.takes, list(before.pilots)) == (1, [1])


def test_kinds_and_pilots_are_bounded_and_the_oldest_go_first() -> None:
    stats = OfferStats[str]()
    for number in range(MAX_RECORDS + 3):
        note(stats, replace(OFFER, ce=f"ce{number}"), 1, False, float(number))
    assert len(stats) == MAX_RECORDS
    note(stats, replace(OFFER, ce="ce3"), 1, False, 1000.0)
    note(stats, replace(OFFER, ce="new"), 1, False, 1001.0)
    names = {kind.offer.ce for kind in stats.recent(1001.0)}
    assert "ce3" in names
    assert not {"ce0", "ce1", "ce2", "ce4"} & names
    for pilot in range(PILOTS + 2):
        note(stats, OFFER, pilot, False, 2000.0 + pilot)
    note(stats, OFFER, 2, False, 3000.0)
    note(stats, OFFER, 9999, False, 3001.0)
    kind = next(kind for kind in stats.recent(3001.0) if kind.offer.ce == "ce1")
    assert len(kind.pilots) == PILOTS
    assert 2 in kind.pilots
    assert 3 not in kind.pilots


def test_after_a_day_a_kind_is_forgotten_but_not_by_a_clock_that_steps_back() -> None:
    stats = OfferStats[str]()
    note(stats, OFFER, 1, False, RECENT)
    assert len(stats.recent(0.0)) == 1
    assert len(stats.recent(2 * RECENT)) == 1
    assert stats.recent(2 * RECENT + 1) == []
    assert len(stats) == 0


def test_a_take_that_did_not_happen_is_taken_back() -> None:
    stats = OfferStats[str]()
    note(stats, OFFER, 1, True, 1.0)
    note(stats, OFFER, 1, True, 2.0)
    kind = stats.refresh(key_of(OFFER), OFFER, "", 2.0)
    kind.revert_take(True)
    assert [(kind.takes, kind.given) for kind in stats.recent(2.0)] == [(1, 1)]
    kind.revert_take(True)
    assert stats.recent(2.0) == []


def test_a_kind_is_fresh_for_a_second_and_until_it_is_forgotten() -> None:
    stats = OfferStats[str]()
    kind = stats.refresh(key_of(OFFER), OFFER, "", 10.0)
    assert [kind.is_fresh(now) for now in (10.0, 10.9, 11.0, 9.0)] == [True, True, False, False]
    for number in range(MAX_RECORDS):
        note(stats, replace(OFFER, ce=f"other{number}"), 1, False, 10.0)
    assert not kind.is_fresh(10.0)
    last = stats.refresh(key_of(replace(OFFER, ce="other9")), OFFER, "", 10.0)
    stats.recent(10.0 + 2 * RECENT)
    assert not last.is_fresh(10.0)


def test_under_a_new_policy_kinds_are_what_the_same_pilots_would_offer_now() -> None:
    stats = OfferStats[str]()
    note(stats, OFFER, 1, True, 1.0)
    note(stats, replace(OFFER, setup="test"), 2, False, 5.0)
    stats.rekey(lambda offer, _: replace(offer, setup="", closed=True), key_of)
    [kind] = stats.recent(5.0)
    assert (kind.offer.setup, kind.offer.closed) == ("", True)
    assert (kind.takes, kind.given, kind.first, kind.last) == (2, 1, 1.0, 5.0)
    assert list(kind.pilots) == [1, 2]


def test_refusals_are_counted_by_site_and_only_of_sites_that_refuse_altogether() -> None:
    def holds(_: QueueIdentity) -> bool:
        return True

    known = [
        KnownOffer(OFFER, holds, takes=7),
        KnownOffer(replace(OFFER, cpu_time=100.0), holds, takes=2),
        KnownOffer(replace(OFFER, site="there"), holds, takes=1),
        KnownOffer(replace(OFFER, site="there", memory=8000), holds, possible=True),
    ]
    [here] = refusals(QUEUE, known)
    assert (here.site, here.known) == ("here", 2)
    assert here.conditions == {Condition.MEMORY: 2, Condition.CPU_TIME: 1}
    assert here.takes == {Condition.MEMORY: 9, Condition.CPU_TIME: 2}
