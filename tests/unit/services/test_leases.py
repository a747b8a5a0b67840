"""Leases: whose is over, what ends with it, and what one row that cannot be ended does to the others: nothing."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from pilotage.core.ids import PilotId
from pilotage.outside.batch.adapter import Receipt
from pilotage.outside.batch.submission import NativeState
from pilotage.server.duties.row_by_row import RowByRow, each
from pilotage.server.failing_rows import DutyFailures
from pilotage.services.director.ce_director import CeDirector
from pilotage.services.director.local_orders import LocalOrders
from pilotage.services.director.next_step import NEVER_BEGAN
from pilotage.services.director.ordering import order_pilots
from pilotage.services.director.submissions import SubmissionIntent
from pilotage.services.director.submitting import acknowledged, refused
from pilotage.services.pilots import leases
from pilotage.services.pilots.enrolment import enrol
from pilotage.store.tables import pilots
from pilotage.wire.pilot import EnrolRequest
from tests.pilot_intent import pilot_intent
from tests.unit.services.bench import LEASE, NODE, POLICY, Bench, Paper
from tests.unit.services.local_answers import answer

SHORT = POLICY.replace(f"lease = {LEASE}", "lease = 10.0").replace("heartbeat = 10.0", "heartbeat = 1.0")


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.slow)])
def any_bench(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Bench]:
    made = Bench(tmp_path, SHORT, store=request.param)
    yield made
    made.end()


def intent(bench: Bench, secret: str = "intent", *, ce: str = "local", batch_id: str = "") -> PilotId:
    return bench.do(
        lambda tx: pilots.insert(
            tx.connection,
            pilot_intent(secret, ce=ce, submitted=bench.now, batch_id=batch_id, lease_until=bench.now + 5.0),
        )
    )


def test_the_lease_of_an_intent_that_never_called_home_ends_in_aborted(any_bench: Bench) -> None:
    bench = any_bench
    pilot = intent(bench)
    [job] = bench.submit()
    bench.pilot().hold()
    bench.later(4.0)
    assert bench.pilot_row(pilot).state == "Submitted"
    # The one beside it is expired as well.
    bench.later(20.0)
    assert bench.pilot_row(pilot).state == "Aborted"
    assert bench.state(job) == "Rescheduled"
    assert len(bench.kinds("pilot-lost")) == 2
    bench.check()


def test_a_row_that_cannot_be_ended_does_not_stop_the_others(
    any_bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    bench = any_bench
    jobs = bench.submit(3)
    first, bad, last = (bench.pilot() for _ in range(3))
    for paper in (first, bad, last):
        paper.hold()
    # No state that may become Failed or Aborted, however it came to be.
    bench.do(lambda tx: tx.connection.execute("UPDATE pilots SET state = 'Done' WHERE id = ?", (bad.id,)))
    bench.now += 20.0
    failures = DutyFailures("leases", lambda: bench.now)
    rows = RowByRow(bench.writer, failures, time.monotonic)

    async def cycle() -> int:
        rows.begin_cycle()
        done = await rows.step(
            "expire leases",
            lambda tx: leases.over(bench.pool.peers, tx, bench.now),
            lambda tx, gone: leases.expire(bench.pool, tx, bench.now, gone),
        )
        rows.end_cycle()
        return done

    async def cycles() -> list[int]:
        done = [await cycle() for _ in range(3)]
        await bench.writer.acall(
            lambda tx: tx.connection.execute("UPDATE pilots SET state = 'Running' WHERE id = ?", (bad.id,))
        )
        return [*done, await cycle(), await cycle()]

    bench.writer.start()
    try:
        with caplog.at_level(logging.ERROR):
            assert asyncio.run(cycles()) == [2, 0, 0, 1, 0]
    finally:
        bench.writer.stop()
    assert not failures
    assert len(caplog.records) == 1
    assert f"failed for {bad.id}" in caplog.text
    assert [bench.state(job) for job in jobs] == ["Rescheduled"] * 3
    bench.check()


def test_at_a_start_any_time_away_counts(any_bench: Bench) -> None:
    bench = any_bench
    bench.sign_of_life()
    [job] = bench.submit()
    pilot = bench.pilot()
    offer = pilot.hold()
    bench.crash()
    bench.now += 12.0
    credit = bench.do(lambda tx: leases.heartbeat(bench.pool, tx, bench.now, begins=True))
    assert credit == pytest.approx(12.0, abs=1.0)
    bench.duties()
    assert bench.state(job) == "Running"
    assert pilot.finish(offer) == "accepted"


def test_a_pause_of_a_running_server_counts_when_it_takes_a_third_of_a_lease(bench: Bench) -> None:
    assert leases.longest_pause(bench.pool.policy) == leases.LONGEST_GAP
    bench.do(lambda tx: leases.heartbeat(bench.pool, tx, bench.now, begins=True))
    [job] = bench.submit()
    bench.pilot().hold()
    heard = bench.now
    bench.now += 20.0
    assert bench.do(lambda tx: leases.heartbeat(bench.pool, tx, bench.now, paused_since=heard)) == 0
    bench.now += 31.0
    assert bench.do(lambda tx: leases.heartbeat(bench.pool, tx, bench.now, paused_since=heard)) == 51
    assert bench.state(job) == "Running"


@pytest.mark.parametrize("away", [20.0, 350.0, 450.0])
def test_a_lease_given_after_a_step_of_the_clock_and_before_an_outage_leaves_time_for_a_renewal(
    bench: Bench, away: float
) -> None:
    bench.sign_of_life()
    jobs = bench.submit(2)
    pilots = [bench.pilot()]
    offers = [pilots[0].hold()]
    bench.now -= 400.0
    pilots.append(bench.pilot())
    offers.append(pilots[1].hold())
    bench.crash()
    bench.now += away
    bench.do(lambda tx: leases.heartbeat(bench.pool, tx, bench.now, begins=True))
    bench.later(19.0)
    assert [bench.state(job) for job in jobs] == ["Running"] * 2
    assert [pilot.finish(offer) for pilot, offer in zip(pilots, offers, strict=True)] == ["accepted"] * 2
    bench.check()


def test_a_lease_of_another_servers_pilot_is_over_when_that_server_was_there_after_its_end(
    any_bench: Bench,
) -> None:
    bench = any_bench
    pilot = bench.pilot()
    until = pilot.row.lease_until
    assert until is not None
    other = "other"
    columns = "name, host, url, version, started, alive_at, policy_version"
    bench.do(
        lambda tx: tx.connection.execute(
            f"INSERT INTO servers ({columns}) VALUES (?, 'h', 'u', 'v', 0, ?, 1)", (other, until - 1.0)
        )
    )
    bench.do(lambda tx: pilots.update(tx.connection, PilotId(pilot.id), server=other))
    bench.now = until + 3.0
    asked = [
        (server, pilots.with_expired_lease(bench.connection, bench.now, server, 9)) for server in ("", other)
    ]
    assert asked == [("", []), (other, [pilot.id])]
    alive = "UPDATE servers SET alive_at = ?"
    bench.do(lambda tx: tx.connection.execute(alive, (until + 1.0,)))
    assert pilots.with_expired_lease(bench.connection, bench.now, "", 9) == [pilot.id]


# --- the director and its pilots


def local_director(ce: str = "local", place: str = "") -> CeDirector:
    return CeDirector(ce, LocalOrders(NODE), local=True, place=place)


def ordered(bench: Bench, director: CeDirector) -> SubmissionIntent:
    """The intent of a pilot for one new job."""
    bench.submit()
    [one] = bench.do(lambda tx: order_pilots(director, bench.pool, tx, bench.now))
    return one


def call_home(bench: Bench, one: SubmissionIntent, batch_id: str = "") -> None:
    request = EnrolRequest(secret=one.secret, index=0, nonce="n", hostname="n1", batch_id=batch_id)
    bench.do(lambda tx: enrol(bench.pool, tx, request, bench.now))


def start(bench: Bench, director: CeDirector, one: SubmissionIntent, batch_id: str) -> bool:
    """The machine has started the pilot. False: it was given up meanwhile."""
    receipt = Receipt(batch_id, (batch_id,))
    return bench.do(lambda tx: acknowledged(director, bench.pool, tx, one.stamp, receipt))


def test_the_directors_batch_id_is_not_replaced_by_what_a_pilot_says(bench: Bench) -> None:
    director = local_director()
    one = ordered(bench, director)
    assert start(bench, director, one, "12:345")
    assert (bench.pilot_row(one.members[0]).state, bench.pilot_row(one.members[0]).lease_until) == (
        "Waiting",
        None,
    )
    call_home(bench, one, batch_id="991")
    assert bench.pilot_row(one.members[0]).batch_id == "12:345"
    [said] = bench.kinds("batch-id")
    assert "991" in said
    assert "12:345" in said


def test_a_batch_id_that_only_the_pilot_knows_is_not_taken(bench: Bench) -> None:
    pilot = intent(bench, batch_id="@here")
    request = EnrolRequest(secret="intent", index=0, nonce="n", hostname="n1", batch_id="991")
    bench.do(lambda tx: enrol(bench.pool, tx, request, bench.now))
    assert bench.pilot_row(pilot).batch_id == "@here"
    assert not bench.kinds("batch-id")


@pytest.mark.parametrize("state", [NativeState.RUNNING, NativeState.ENDED, NativeState.UNKNOWN])
def test_the_directors_hand_over(bench: Bench, state: NativeState) -> None:
    director = local_director(place="@here")
    [pilot] = ordered(bench, director).members
    answer(bench, director, state)
    row = bench.pilot_row(pilot)
    assert (row.state, row.batch_id, row.reason) == {
        NativeState.RUNNING: ("Submitted", "1:2", ""),
        NativeState.ENDED: ("Aborted", "@here", NEVER_BEGAN),
        NativeState.UNKNOWN: ("Submitted", "@here", ""),
    }[state]


@pytest.mark.parametrize("state", [NativeState.RUNNING, NativeState.ENDED, NativeState.UNKNOWN])
def test_a_pilot_that_has_called_home_runs_whatever_is_recorded_of_its_start(
    bench: Bench, state: NativeState
) -> None:
    director = local_director(place="@here")
    one = ordered(bench, director)
    call_home(bench, one)
    answer(bench, director, state, words="killed")
    row = bench.pilot_row(one.members[0])
    ended = ("Failed", "its batch job has ended without a word: killed")
    assert (row.state, row.reason) == (ended if state is NativeState.ENDED else ("Running", ""))


def test_a_pilot_that_was_heard_after_the_listing_is_not_gone(bench: Bench) -> None:
    director = local_director()
    one = ordered(bench, director)
    pilot = Paper(bench, one.secret)
    listed = bench.now
    bench.now += 1.0
    job = pilot.hold().job
    answer(bench, director, NativeState.ENDED, listed=listed)
    assert (bench.state(job), pilot.row.state) == ("Running", "Running")
    answer(bench, director, NativeState.ENDED)
    assert (bench.state(job), pilot.row.state) == ("Rescheduled", "Failed")


def test_an_intent_that_is_given_up_is_refused_and_its_late_start_is_ended(bench: Bench) -> None:
    one = ordered(bench, local_director())
    director = local_director()
    answer(bench, director, NativeState.ENDED)
    assert bench.pilot_row(one.members[0]).state == "Aborted"
    assert not start(bench, director, one, "1:2")
    with pytest.raises(Exception, match="Aborted"):
        call_home(bench, one)
    # Intents of an earlier server hold nothing back; those that could not be started here do.
    assert director.memory.failures == 0


def test_pilots_that_cannot_be_started_are_not_tried_in_a_tight_loop(bench: Bench) -> None:
    director = local_director("home")
    for count in range(1, 4):
        one = ordered(bench, director)
        assert bench.pilot_row(one.members[0]).lease_until == bench.now + LEASE
        bench.do(lambda tx, one=one: refused(director, bench.pool, tx, one.stamp, "no fork", bench.now))
        assert director.memory.failures == count
    bench.submit()
    assert bench.do(lambda tx: order_pilots(director, bench.pool, tx, bench.now)) == []
    bench.now += 7.9
    assert bench.do(lambda tx: order_pilots(director, bench.pool, tx, bench.now)) == []
    bench.now += 0.1
    assert bench.do(lambda tx: order_pilots(director, bench.pool, tx, bench.now))


def test_a_step_that_fails_does_not_stop_the_steps_behind_it() -> None:
    done: list[str] = []

    async def well() -> None:
        done.append("well")

    async def badly() -> None:
        done.append("badly")
        raise RuntimeError(f"number {len(done)}")

    with pytest.raises(RuntimeError, match="number 2"):
        asyncio.run(each([well, badly, well, badly]))
    assert done == ["well", "badly", "well", "badly"]
