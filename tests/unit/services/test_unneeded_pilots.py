"""With demand `matched`, waiting pilots that nobody needs any more are cancelled; needed and started ones stay."""

from __future__ import annotations

from typing import Any

from pilotage.core.pilots.states import PilotState
from pilotage.outside.batch.submission import NativeState
from pilotage.services.director.unneeded import (
    CANCELLED_AT_ONCE,
    UnneededPilots,
    cancel_pilots,
    has_waiting_pilots,
)
from pilotage.store.tables import pilots
from tests.unit.services import test_batch_director as batch
from tests.unit.services.iterations import run_iteration
from tests.unit.services.test_batch_director import MAX_WAITING, Site
from tests.unit.services.test_why import new_policy

PATIENCE = 60.0
"""The default of `director.cancel_after`."""


def cancel(site: Site, memory: UnneededPilots) -> list[int]:
    """One iteration of the duty that orders nothing."""
    bench = site.bench

    def request(tx: Any) -> list[int]:
        work = run_iteration(bench.pool, tx.connection, bench.pool.rng, bench.now)
        unneeded = memory.note(tx.connection, work, bench.now)[:CANCELLED_AT_ONCE]
        return list(cancel_pilots(bench.pool, tx, work, unneeded, bench.now))

    return bench.do(request)


def test_waiting_pilots_that_nobody_needs_are_cancelled(site: Site) -> None:
    memory = UnneededPilots()
    jobs = site.bench.submit(MAX_WAITING)
    site.cycle()
    site.cycle()
    first, second, third = sorted(row.id for row in pilots.live(site.bench.connection, "batch"))
    assert has_waiting_pilots(site.bench.pool)
    assert cancel(site, memory) == []
    assert memory.since == {}, "each covers a job"
    site.bench.act("kill", *jobs[1:])
    assert cancel(site, memory) == []
    assert set(memory.since) == {second, third}, "the newest ones are not needed"
    site.bench.later(PATIENCE - 1)
    assert cancel(site, memory) == []
    site.bench.later(1)
    assert sorted(cancel(site, memory)) == [second, third]
    assert cancel(site, memory) == [], "they have their order"
    site.cycle()
    site.bench.later(batch.SETTLE)
    site.cycle()
    site.bench.later(batch.SETTLE)
    site.cycle()
    assert [row.id for row in pilots.live(site.bench.connection, "batch")] == [first]
    for pilot in (second, third):
        row = site.bench.pilot_row(pilot)
        assert (row.state, row.reason) == (PilotState.DELETED, "no waiting job needs it")
    assert [job.state for job in site.batch.jobs] == [NativeState.WAITING]
    site.start_pilots()
    site.work()
    assert batch.states(site)["Done"] == 1


def test_a_new_job_needs_them_again_and_started_pilots_stay(site: Site) -> None:
    memory = UnneededPilots()
    jobs = site.bench.submit(2)
    site.cycle()
    site.bench.act("kill", *jobs)
    cancel(site, memory)
    assert len(memory.since) == 2
    site.bench.later(PATIENCE - 1)
    again = site.bench.submit(2)
    assert cancel(site, memory) == []
    assert memory.since == {}
    site.start_pilots()
    site.bench.act("kill", *again)
    cancel(site, memory)
    site.bench.later(PATIENCE)
    assert cancel(site, memory) == [], "pilots that have called home leave when they are idle"
    site.work()


def test_demand_by_the_document_cancels_nothing(site: Site) -> None:
    memory = UnneededPilots()
    jobs = site.bench.submit(2)
    site.cycle()
    site.bench.act("kill", *jobs)
    cancel(site, memory)
    text = site.bench.policy_text.replace('demand = "matched"', 'demand = "dirac"')
    new_policy(site.bench, text)
    site.bench.later(PATIENCE)
    assert cancel(site, memory) == []
    assert memory.since == {}
    site.start_pilots()
    site.work()


def test_a_pilot_that_waits_too_long_covers_no_job_any_more(site: Site) -> None:
    """A CE where nothing ever starts must not keep a job for itself."""
    site.bench.submit(1)
    site.cycle()
    hours = site.bench.pool.policy.director.max_pilot_waiting_hours
    site.bench.later(hours * 3600 - 1)
    site.cycle()
    assert site.live_pilots() == 1
    site.bench.later(2)
    site.cycle()
    assert site.live_pilots() == 2, "another pilot for the same job"
    assert cancel(site, UnneededPilots()) == []
    assert len(pilots.live(site.bench.connection, "batch")) == 2, "the old one keeps its place"


def test_a_pilot_that_calls_home_before_its_order_stays(site: Site) -> None:
    """The pilots are found outside of the transaction that cancels them."""
    memory, bench = UnneededPilots(), site.bench
    jobs = bench.submit(2)
    site.cycle()
    bench.act("kill", *jobs)
    cancel(site, memory)
    bench.later(PATIENCE)
    work = bench.do(lambda tx: run_iteration(bench.pool, tx.connection, bench.pool.rng, bench.now))
    unneeded = memory.note(bench.connection, work, bench.now)
    assert len(unneeded) == 2
    site.start_pilots()
    assert bench.do(lambda tx: cancel_pilots(bench.pool, tx, work, unneeded, bench.now)) == []
    assert [row.leave for row in pilots.live(bench.connection, "batch")] == ["", ""]
    site.work()


def test_nothing_is_cancelled_after_the_policy_has_changed(site: Site) -> None:
    memory, bench = UnneededPilots(), site.bench
    jobs = bench.submit(2)
    site.cycle()
    bench.act("kill", *jobs)
    cancel(site, memory)
    bench.later(PATIENCE)
    work = bench.do(lambda tx: run_iteration(bench.pool, tx.connection, bench.pool.rng, bench.now))
    unneeded = memory.note(bench.connection, work, bench.now)
    new_policy(bench, bench.policy_text.replace('demand = "matched"', 'demand = "dirac"'))
    assert bench.do(lambda tx: cancel_pilots(bench.pool, tx, work, unneeded, bench.now)) == []
    site.start_pilots()
    site.work()
