"""Draws that are lost: the rows say otherwise than memory, as after a change behind the server's back."""

from __future__ import annotations

import json
import secrets
from collections.abc import Sequence
from dataclasses import replace

import pytest

from pilotage.core.policy import parse
from pilotage.services.jobs.actions import act
from pilotage.services.pilots.exchange import exchange_many, token_hash
from pilotage.services.policy.apply import apply_policy
from pilotage.services.pool.index_loading import open_pool
from pilotage.services.pool.state import Pool
from pilotage.store.tables import held_jobs
from pilotage.store.tables import jobs as job_rows
from pilotage.wire.pilot import OfferedJob, Reference, Release
from tests.unit.services.bench import POLICY, Bench, finished
from tests.writer_guard import as_writer

ONE_OF_ALICE = """
[[limits]]
attribute = "owner"
value = "alice"
site = "here"
running = 1
"""


def elsewhere(bench: Bench) -> Pool:
    """A pool over the same rows that the first one does not hear of."""
    mine = bench.pool
    other = bench.do(
        lambda tx: open_pool(
            tx,
            mine.policy,
            version=mine.server.policy_version,
            incarnation=mine.server.incarnation,
            rng=mine.rng,
            secrets=secrets,
            home_owner=mine.server.home_owner,
        )
    )
    with as_writer():
        other.ids = replace(other.ids, events=mine.ids.events)
    return other


def read_heads(bench: Bench) -> None:
    """Read all heads into memory, so that a draw cannot find out by itself."""
    for entry in bench.pool.queues.index.entries.values():
        for weight, part in entry.levels.items():
            bench.pool.queues.index._read_heads([(entry, weight, part)])


def act_unheard(bench: Bench, verb: str, *jobs: int) -> None:
    read_heads(bench)
    other = elsewhere(bench)
    outcome = bench.do(
        lambda tx: act(other, tx, verb, jobs, actor="user:alice", reason="", now=bench.now, dry_run=False)
    )
    assert outcome.done == list(jobs)


def ids(offers: Sequence[OfferedJob]) -> list[int]:
    return sorted(offer.job for offer in offers)


def limited(bench: Bench, limits: str) -> None:
    text = POLICY + limits
    policy = parse(text)
    bench.do(lambda tx: apply_policy(bench.pool, tx, policy, text, by="a", reason="", now=bench.now))


def test_the_only_job_drawn_is_gone_and_another_is_drawn(bench: Bench) -> None:
    *gone, left = bench.submit(5)
    act_unheard(bench, "kill", *gone)
    pilot = bench.pilot()
    assert ids(pilot.take()) == [left]
    assert pilot.take() == []


def test_of_several_jobs_drawn_only_those_that_are_gone_are_replaced(bench: Bench) -> None:
    jobs = bench.submit(30)
    pilot = bench.pilot(processors=16)
    act_unheard(bench, "kill", *jobs[::2])
    offers = pilot.take(15, processors=16)
    assert ids(offers) == jobs[1::2]
    assert sorted(pilot.row.jobs) == jobs[1::2]
    for offer in offers:
        assert pilot.confirm(offer) == "accepted"
        assert pilot.finish(offer) == "accepted"


def test_a_take_gives_the_job_of_the_current_row(bench: Bench) -> None:
    [job] = bench.submit()
    act_unheard(bench, "kill", job)
    act_unheard(bench, "reschedule", job)
    pilot = bench.pilot()
    [offer] = pilot.take()
    assert pilot.confirm(offer) == "accepted"
    assert pilot.finish(offer) == "accepted"


def test_a_take_that_loses_everything_is_answered_and_the_next_one_is_another(bench: Bench) -> None:
    jobs = bench.submit(3)
    pilot = bench.pilot()
    act_unheard(bench, "kill", *jobs)
    assert pilot.take() == []
    more = bench.submit()
    assert ids(pilot.take()) == more


@pytest.mark.parametrize("others", ["alice", "bob"])
def test_a_take_that_loses_everything_binds_the_pilot_to_nobody(bench: Bench, others: str) -> None:
    gone = bench.submit(3)
    pilot = bench.pilot()
    act_unheard(bench, "kill", *gone)
    assert pilot.take() == []
    assert pilot.row.only_owner is None
    more = bench.submit(owner=others)
    assert ids(pilot.take()) == more
    assert pilot.row.only_owner == others


def test_a_take_that_loses_all_jobs_of_an_owner_gets_jobs_of_another(bench: Bench) -> None:
    limited(bench, '[matching]\nrule = "dirac"\n')
    gone = bench.submit(3, cpu_time=5000)  # drawn first
    act_unheard(bench, "kill", *gone)
    left = bench.submit(owner="bob", group="sharing")
    pilot = bench.pilot()
    assert ids(pilot.take()) == left
    assert pilot.row.only_owner == "bob"


def test_a_take_that_keeps_some_jobs_stays_bound_to_their_owner(bench: Bench) -> None:
    *gone, kept = bench.submit(4)
    act_unheard(bench, "kill", *gone)
    pilot = bench.pilot(processors=8)
    assert ids(pilot.take(4, processors=8)) == [kept]
    assert pilot.row.only_owner == "alice"


def test_a_lost_draw_counts_under_no_limit(bench: Bench) -> None:
    limited(bench, ONE_OF_ALICE)
    jobs = bench.submit(3)
    pilots = [bench.pilot() for _ in range(2)]
    act_unheard(bench, "kill", *jobs)
    assert pilots[0].take() == []
    bench.check()
    more = bench.submit(2)
    [offer] = pilots[0].take()
    assert offer.job in more
    assert pilots[1].take() == []
    assert pilots[0].confirm(offer) == "accepted"
    assert pilots[0].finish(offer) == "accepted"
    assert len(pilots[1].take()) == 1


def test_the_replacement_of_a_lost_job_fits_beside_the_kept_jobs(bench: Bench) -> None:
    kept, gone = bench.submit(2, cpu_time=5000)
    bench.submit(1, processors=2)
    pilot = bench.pilot(processors=2)
    act_unheard(bench, "kill", gone)
    assert ids(pilot.take(2, processors=2)) == [kept]


def test_a_lost_draw_leaves_no_event(bench: Bench) -> None:
    job, other = bench.submit(2)
    act_unheard(bench, "kill", job)
    [offer] = bench.pilot(processors=2).take(2, processors=2)
    assert offer.job == other
    sql = "SELECT jobs FROM events WHERE kind = 'offered'"
    listed = [entry[0] for row in bench.connection.execute(sql) for entry in json.loads(row[0])]
    assert listed == [other]


def test_pilots_of_one_group_that_lose_the_same_queue_are_given_different_jobs(bench: Bench) -> None:
    jobs = bench.submit(20)
    pilots = [bench.pilot() for _ in range(4)]
    act_unheard(bench, "kill", *jobs[:15])
    messages = [(token_hash(one.token), one.request(take=one.asked())) for one in pilots]
    answers = bench.do(lambda tx: exchange_many(bench.pool, tx, messages, bench.now))
    given = [offer.job for answer in answers for offer in answer.offers]
    assert len(given) == len(set(given)) == 4
    assert set(given) <= set(jobs[15:])
    bench.check()


def test_a_pilot_that_has_left_is_given_nothing_for_what_it_lost(bench: Bench) -> None:
    jobs = bench.submit(12)
    pilot = bench.pilot()
    act_unheard(bench, "kill", *jobs[:10])
    letters = [pilot.request(take=pilot.asked()), pilot.request(leaving="idle")]
    messages = [(token_hash(pilot.token), letter) for letter in letters]
    bench.do(lambda tx: exchange_many(bench.pool, tx, messages, bench.now))
    assert [bench.state(job) for job in jobs[10:]] == ["Waiting"] * 2


def test_a_pilot_keeps_the_job_that_another_server_gave_it_and_this_one_draws_for_it(bench: Bench) -> None:
    held, *others = bench.submit(3)
    pilot, there = bench.pilot(processors=8), elsewhere(bench)
    read_heads(bench)
    letter = (token_hash(pilot.token), pilot.request(take=pilot.asked(processors=8)))
    bench.do(lambda tx: exchange_many(there, tx, [letter], bench.now))
    pilot.number += 1
    assert bench.state(held) == "Matched"
    assert ids(pilot.take(2, processors=8)) == others
    assert set(pilot.row.jobs) == {held, *others}
    bench.do(pilot.asking(pilot.request(leaving="idle")))
    assert [bench.state(job) for job in (held, *others)] == ["Waiting"] * 3


def test_a_take_whose_offers_have_lapsed_is_answered_again_without_them_and_moves_on(bench: Bench) -> None:
    bench.submit()
    pilot = bench.pilot()
    bench.do(pilot.asking(pilot.request(take=pilot.asked())))  # the answer is lost
    bench.later(61.0)
    assert pilot.take() == []
    assert len(pilot.take()) == 1


def test_a_message_about_a_job_given_away_in_its_group_is_told_so(bench: Bench) -> None:
    [job] = bench.submit()
    old, new = bench.pilot(), bench.pilot()
    offer = old.hold()
    again = Reference(job, offer.epoch)
    messages = [
        (token_hash(old.token), old.request(releases=[Release(job, offer.epoch)])),
        (token_hash(new.token), new.request(take=new.asked())),
        (token_hash(old.token), old.request(finishes=[finished(offer)])),
        (token_hash(old.token), old.request(confirms=[again], releases=[Release(job, offer.epoch)])),
    ]
    answers = bench.do(lambda tx: exchange_many(bench.pool, tx, messages, bench.now))
    _, given, finish, rest = answers
    assert [(one.job, one.epoch) for one in given.offers] == [(job, offer.epoch + 1)]
    verdicts = [*finish.finishes, *rest.confirms, *rest.releases]
    assert [one.verdict for one in verdicts] == ["superseded"] * 3
    assert bench.state(job) == "Matched"


def test_a_job_on_the_lists_of_two_pilots_is_held_once(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a pilot gave back stays on its list; the limits must not count it there too."""
    limited(bench, ONE_OF_ALICE)
    bench.submit()
    first, second = bench.pilot(), bench.pilot()
    first.release(first.hold())
    offer = second.hold()
    monkeypatch.setattr(job_rows, "BATCH_SIZE", 1)
    bench.do(bench.pool.offers.limits.recount)
    [count] = [meter.running for meter in bench.pool.offers.limits.limiter._meters.values()]
    assert count == 1
    assert second.finish(offer) == "accepted"
    assert [one.id for one in held_jobs.of_live_pilots(bench.connection)] == []


def test_a_queue_taken_back_with_its_group_is_forgotten(bench: Bench) -> None:
    """Its id may be given to another queue."""
    [job] = bench.submit(owner="alice")
    bench.act("kill", job)
    queue = bench.job(job)["queue_id"]
    bench.connection.execute("DELETE FROM queues")
    bench.do(lambda tx: bench.pool.forget_queues(tx, [queue]))

    def fails(_: object) -> None:
        raise RuntimeError("this one only")

    def reschedule(tx: object) -> None:
        act(bench.pool, tx, "reschedule", [job], actor="a", reason="", now=bench.now, dry_run=False)  # type: ignore[arg-type]
        fails(tx)

    bench.together(reschedule)
    [other] = bench.submit(owner="bob", cpu_time=5000)
    place = bench.job(other)["queue_id"]
    assert bench.pool.queues.identities[place].owner == "bob"
    assert bench.pool.queues.index.entries[place].identity.owner == "bob"
    bench.act("reschedule", job)
