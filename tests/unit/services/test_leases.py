"""Leases: whose is over, what ends with it, and what one row that cannot be ended does to the others: nothing."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

from pilotage.core.ids import PilotId
from pilotage.core.pilots.handover import Seen
from pilotage.server.duties.row_by_row import RowByRow, each
from pilotage.server.failing_rows import DutyFailures
from pilotage.services.director.local import LocalDirector
from pilotage.services.pilots import leases
from pilotage.services.pilots.enrolment import enrol
from pilotage.store.tables import pilots
from pilotage.store.tables.pilots import SubmittedPilot
from pilotage.wire.pilot import EnrolRequest
from tests.pilot_intent import pilot_intent
from tests.unit.services.bench import LEASE, NODE, POLICY, Bench

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
    rows = RowByRow(bench.writer, failures)

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
    assert credit == pytest.approx(12.0 + 2 * 1.0, abs=1.0)
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
    assert bench.do(lambda tx: leases.heartbeat(bench.pool, tx, bench.now, paused_since=heard)) == 51 + 20
    assert bench.state(job) == "Running"


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


def watched(bench: Bench, pilot: int) -> SubmittedPilot:
    [row] = [one for one in pilots.with_batch_jobs(bench.connection, "local") if one.id == pilot]
    return row


def test_the_directors_batch_id_is_not_replaced_by_what_a_pilot_says(bench: Bench) -> None:
    pilot = intent(bench)
    director = LocalDirector("local", NODE)
    assert bench.do(lambda tx: director.record_start(bench.pool, tx, pilot, "12:345"))
    request = EnrolRequest(secret="intent", index=0, nonce="n", hostname="n1", batch_id="991")
    bench.do(lambda tx: enrol(bench.pool, tx, request, bench.now))
    assert bench.pilot_row(pilot).batch_id == "12:345"
    [said] = bench.kinds("batch-id")
    assert "991" in said
    assert "12:345" in said


def test_a_batch_id_that_only_the_pilot_knows_is_not_taken(bench: Bench) -> None:
    pilot = intent(bench, batch_id="@here")
    request = EnrolRequest(secret="intent", index=0, nonce="n", hostname="n1", batch_id="991")
    bench.do(lambda tx: enrol(bench.pool, tx, request, bench.now))
    assert bench.pilot_row(pilot).batch_id == "@here"
    assert not bench.kinds("batch-id")


def test_the_directors_hand_over(bench: Bench) -> None:
    director = LocalDirector("local", NODE)
    pilot = intent(bench, batch_id="@here")
    asked = [str(director.action(watched(bench, pilot), seen, holds=False)) for seen in Seen]
    assert asked == ["adopt", "abort", "none"]
    request = EnrolRequest(secret="intent", index=0, nonce="n", hostname="n1")
    bench.do(lambda tx: enrol(bench.pool, tx, request, bench.now))
    # It has called home: it runs, whatever is recorded of its start.
    asked = [str(director.action(watched(bench, pilot), seen, holds=False)) for seen in Seen]
    assert asked == ["none", "lose", "none"]


def test_a_pilot_that_was_heard_after_the_listing_is_not_gone(bench: Bench) -> None:
    director = LocalDirector("local", NODE)
    [job] = bench.submit()
    pilot = bench.pilot()
    listed = bench.now
    bench.now += 1.0
    pilot.hold()
    row = watched(bench, pilot.id)
    bench.do(lambda tx: director.record_end(bench.pool, tx, row, "", bench.now, listed))
    assert (bench.state(job), pilot.row.state) == ("Running", "Running")
    bench.do(lambda tx: director.record_end(bench.pool, tx, row, "", bench.now, bench.now))
    assert (bench.state(job), pilot.row.state) == ("Rescheduled", "Failed")


def test_an_intent_that_is_given_up_is_refused_and_its_late_start_is_ended(bench: Bench) -> None:
    director = LocalDirector("local", NODE)
    pilot = intent(bench)
    bench.do(lambda tx: director.abort(bench.pool, tx, pilot, "it was never started", bench.now))
    assert bench.pilot_row(pilot).state == "Aborted"
    assert not bench.do(lambda tx: director.record_start(bench.pool, tx, pilot, "1:2"))
    request = EnrolRequest(secret="intent", index=0, nonce="n", hostname="n1")
    with pytest.raises(Exception, match="Aborted"):
        bench.do(lambda tx: enrol(bench.pool, tx, request, bench.now))
    # Intents of an earlier server hold nothing back; those that could not be started here do.
    assert director.aborted_in_a_row == 0


def test_pilots_that_cannot_be_started_are_not_tried_in_a_tight_loop(bench: Bench) -> None:
    director = LocalDirector("home", NODE)
    for count in range(1, 4):
        bench.submit()
        ordered = bench.do(lambda tx: director.order(bench.pool, tx, bench.now))
        assert len(ordered) == 1
        for one in ordered:
            assert bench.pilot_row(one.pilot).lease_until == bench.now + LEASE
            bench.do(lambda tx, one=one: director.abort(bench.pool, tx, one.pilot, "no fork", bench.now))
        assert director.aborted_in_a_row == count
    bench.submit()
    assert bench.do(lambda tx: director.order(bench.pool, tx, bench.now)) == []
    bench.now += 60.0
    assert bench.do(lambda tx: director.order(bench.pool, tx, bench.now))


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
