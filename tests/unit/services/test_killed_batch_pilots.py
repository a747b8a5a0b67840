"""Pilots of a batch system that an administrator kills, in each phase of their submission."""

from __future__ import annotations

from pilotage.core.ids import PilotId
from pilotage.core.pilots.orders import LeaveOrder
from pilotage.outside.batch.submission import NativeState
from pilotage.services.pilots.orders import order_to_leave
from pilotage.store.tables import pilots
from tests.unit.services.test_batch_director import SETTLE, Site, assert_settled


def kill(site: Site, count: int | None = None) -> list[PilotId]:
    """Kill the first pilots that live, by default all."""
    bench = site.bench
    ids = [row.id for row in pilots.live(bench.connection, "batch")][:count]
    order = LeaveOrder.KILL
    bench.do(
        lambda tx: order_to_leave(bench.pool, tx, ids, order, actor="user:root", reason="", now=bench.now)
    )
    return ids


def states_of(site: Site, ids: list[PilotId]) -> set[str]:
    return {site.bench.pilot_row(id_).state for id_ in ids}


def test_a_waiting_pilot_is_cancelled_in_the_batch_system_and_then_ends(site: Site) -> None:
    site.bench.submit(2)
    site.cycle()
    [killed] = kill(site, 1)
    batch_id = site.bench.pilot_row(killed).batch_id
    assert states_of(site, [killed]) == {"Waiting"}, "it is there until a listing lacks it"
    site.bench.later(1.0)
    site.cycle()
    assert batch_id not in {job.batch_id for job in site.batch.jobs}
    site.bench.later(SETTLE)
    site.cycle()
    site.bench.later(SETTLE)
    site.cycle()
    row = site.bench.pilot_row(killed)
    assert (row.state, row.reason) == ("Deleted", "killed by root")
    assert site.director.memory.failures == 0, "the CE is not blamed"
    assert_settled(site)


def test_a_running_pilot_is_cancelled_and_its_job_loses_no_try(site: Site) -> None:
    [job] = site.bench.submit(1)
    site.cycle()
    site.start_pilots()
    [(batch_id, (_, paper))] = site.papers.items()
    paper.hold()
    [killed] = kill(site)
    site.bench.later(1.0)
    site.cycle()
    assert batch_id not in {task.batch_id for task in site.batch.jobs}
    del site.papers[batch_id]
    for _ in range(2):
        site.bench.later(SETTLE)
        site.cycle()
    assert site.bench.pilot_row(killed).state == "Deleted"
    assert site.bench.job(job)["failures"] == 0
    assert_settled(site)


def test_a_submission_that_is_still_held_is_cancelled_as_a_whole(site: Site) -> None:
    """The server ended before the release: the next listing cancels it, and never lets it start."""
    site.bench.submit(1)
    site.cycle("after its id")
    assert [job.state for job in site.batch.jobs] == [NativeState.HELD]
    killed = kill(site)
    stamps = {job.stamp for job in site.batch.jobs}
    site.bench.later(1.0)
    site.cycle()
    assert not [job for job in site.batch.jobs if job.stamp in stamps]
    site.bench.later(1.0)
    site.cycle()
    assert states_of(site, killed) == {"Deleted"}
    assert_settled(site)


def test_a_killed_pilot_that_has_left_is_not_cancelled_again(site: Site) -> None:
    site.bench.submit(1)
    site.cycle()
    site.start_pilots()
    [(_, (_, paper))] = site.papers.items()
    killed = kill(site)
    assert paper.send().leave == "cancel"
    paper.send(leaving="told to leave")
    assert states_of(site, killed) == {"Deleted"}
    assert pilots.killed(site.bench.connection, "batch") == []
    site.papers.clear()
    site.batch.jobs.clear()
    assert_settled(site)
