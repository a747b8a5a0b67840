"""Pilots that were given up and live: they keep what nobody else was given, and their costs are right."""

from __future__ import annotations

import pytest

from pilotage.core.errors import Forbidden
from pilotage.services.pilots.enrolment import enrol
from pilotage.wire.pilot import EnrolRequest
from tests.unit.services.bench import HEARTBEAT, LEASE, Bench, Paper


@pytest.mark.parametrize("seconds", [0.0, 100.0], ids=["rescheduled", "waiting"])
def test_a_pilot_that_comes_back_keeps_its_job(bench: Bench, seconds: float) -> None:
    [job] = bench.submit()
    pilot = bench.pilot()
    offer = pilot.hold()
    bench.later(LEASE + 1)
    bench.later(seconds)
    assert bench.state(job) == ("Waiting" if seconds else "Rescheduled")
    # It asks for more in the same message, and is not offered its own job again.
    asked = pilot.send(holding=[offer], take=pilot.asked())
    assert not asked.stop
    assert not asked.offers
    assert bench.state(job) == "Running"
    assert bench.job(job)["failures"] == 0
    assert bench.outcomes(job) == [None]
    assert bench.pilot_row(pilot.id).jobs == [job]
    assert pilot.finish(offer) == "accepted"
    assert bench.state(job) == "Done"
    assert [event.kind for event in bench.history(job)][-2:] == ["resumed", "finished"]


def test_a_job_that_another_pilot_was_given_stays_there(bench: Bench) -> None:
    [job] = bench.submit()
    first = bench.pilot()
    offer = first.hold()
    bench.later(LEASE + 1)
    bench.later(100.0)
    second = bench.pilot()
    second.hold()
    assert [stopped.job for stopped in first.send(holding=[offer]).stop] == [job]
    assert bench.job(job)["pilot_id"] == second.id
    assert bench.job(job)["failures"] == 1


def test_a_job_that_was_given_back_is_not_resumed(bench: Bench) -> None:
    [job] = bench.submit()
    pilot = bench.pilot()
    offer = pilot.hold()
    pilot.release(offer)
    assert pilot.stopped(offer) == [job]
    assert bench.state(job) == "Waiting"


def test_a_lapsed_offer_is_not_resumed(bench: Bench) -> None:
    [job] = bench.submit()
    pilot = bench.pilot()
    [offer] = pilot.take()
    bench.later(LEASE + 1)
    assert [verdict.job for verdict in pilot.send(holding=[offer]).stop] == [job]
    assert bench.state(job) == "Waiting"


def test_a_batch_job_that_was_started_again_is_told_to_leave(bench: Bench) -> None:
    """No alarm, no token, and its job goes back without a try. The first program may live, and works on then."""
    [job] = bench.submit()
    pilot = bench.pilot()
    offer = pilot.hold()
    again = EnrolRequest(secret=pilot.secret, index=pilot.index, nonce="second", restarts=1)
    for _ in range(2):
        answer = bench.do(lambda tx: enrol(bench.pool, tx, again, bench.now))
        assert answer.leave
        assert not answer.token
    assert bench.state(job) == "Waiting"
    assert bench.job(job)["failures"] == 0
    assert not bench.kinds("alarm")
    assert len(bench.kinds("pilot-lost")) == len(bench.kinds("pilot-restarted")) == 1
    assert pilot.stopped(offer) == []
    assert bench.state(job) == "Running"
    assert bench.job(job)["failures"] == 0


def copies(bench: Bench, pilot: Paper, *, nonce: str = "first") -> str:
    """A late copy of an enrolment arrives; the token that it is answered with, which nobody reads."""
    request = EnrolRequest(secret=pilot.secret, index=pilot.index, nonce=nonce, hostname="n1")
    return bench.do(lambda tx: enrol(bench.pool, tx, request, bench.now)).token


def test_a_late_copy_of_an_enrolment_leaves_the_living_program_its_token(bench: Bench) -> None:
    bench.submit(2)
    pilot = bench.pilot()
    offer = pilot.hold()
    before = pilot.row
    for _ in range(2):
        bench.later(HEARTBEAT)
        assert copies(bench, pilot) == pilot.token
    assert pilot.row == before
    assert pilot.finish(offer) == "accepted"
    assert pilot.hold()


def test_a_late_copy_of_an_enrolment_is_no_sign_of_life(bench: Bench) -> None:
    [job] = bench.submit()
    pilot = bench.pilot()
    offer = pilot.hold()
    bench.later(LEASE - 1)
    copies(bench, pilot)
    bench.later(2)
    assert pilot.row.state == "Failed"
    ended = pilot.row
    copies(bench, pilot)
    assert pilot.row == ended
    assert not bench.pool.pilots.heard
    # Its first exchange proves that it lives.
    assert not pilot.send(holding=[offer]).stop
    assert pilot.row.state == "Running"
    assert bench.state(job) == "Running"


def test_a_late_copy_of_a_superseded_enrolment_is_refused(bench: Bench) -> None:
    bench.submit()
    pilot = bench.pilot()
    for nonce in ("second", "third"):
        pilot.enrol(nonce)
    offer = pilot.hold()
    for nonce in ("first", "second"):
        with pytest.raises(Forbidden):
            copies(bench, pilot, nonce=nonce)
    assert pilot.finish(offer) == "accepted"
    assert len(bench.kinds("alarm")) == 2


def test_a_new_program_of_a_pilot_that_was_given_up_comes_back_with_its_first_exchange(bench: Bench) -> None:
    bench.submit()
    pilot = bench.pilot()
    bench.later(LEASE + 1)
    pilot.enrol("second")
    assert pilot.row.state == "Failed"
    assert pilot.hold()
    assert pilot.row.state == "Running"
