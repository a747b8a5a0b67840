"""Listings of a batch system: a submission that has not changed is not looked at again, any other is."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from pilotage.cli.ces.show import orphans_text, wait_text
from pilotage.core.ids import PilotId
from pilotage.core.pilots.orders import LeaveOrder
from pilotage.core.provisioning.probe import StepState
from pilotage.outside.batch.submission import BatchListing, NativeState
from pilotage.services.director.ce_jobs import listed_jobs
from pilotage.services.director.ce_status import summaries
from pilotage.services.director.listing_comparison import compare
from pilotage.services.director.observing import begin_observation
from pilotage.services.director.probes import account, request_probe
from pilotage.services.pilots.lifecycle import PilotEnd, end_silent_pilot
from pilotage.services.pilots.orders import order_to_leave
from pilotage.store.tables import ce_probes, pilots
from pilotage.wire.ces import CeWait
from tests.unit.services.test_batch_director import SETTLE, Site


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    made = Site(tmp_path)
    made.bench.submit(2)
    made.cycle()
    made.start_pilots()
    made.cycle()
    made.cycle()
    yield made
    made.bench.end()


def observed(site: Site, listing: BatchListing | None = None) -> list[str]:
    """The stamps of the submissions that a listing makes the director observe."""
    listing = listing or site.batch.list_pilots()
    found = compare(site.bench.connection, "batch", site.director.unchanged, listing, site.bench.now)
    return [observation.row.stamp for observation in found.observations]


def stamps(site: Site) -> set[str]:
    return {job.stamp for job in site.batch.jobs}


def test_nothing_is_observed_while_nothing_changes(site: Site) -> None:
    assert stamps(site)
    for _ in range(3):
        site.bench.now += 60.0
        assert observed(site) == []
        site.cycle()


@pytest.mark.parametrize("reason", ["", "JobHeldUser"])
@pytest.mark.parametrize("state", [NativeState.ENDED, NativeState.HELD, NativeState.UNKNOWN])
def test_a_submission_with_another_state_is_observed(site: Site, state: NativeState, reason: str) -> None:
    listing = site.batch.list_pilots()
    first, *others = listing.tasks
    changed = replace(listing, tasks=(replace(first, state=state, reason=reason), *others))
    # Only an end, or the reason why a job waits, changes something.
    is_change = state is NativeState.ENDED or (state is NativeState.HELD and bool(reason))
    assert observed(site, changed) == ([first.stamp] if is_change else [])
    assert observed(site, replace(listing, tasks=tuple(others))) == [first.stamp]


def test_all_are_observed_after_a_restart_of_the_controller(site: Site) -> None:
    assert set(observed(site, replace(site.batch.list_pilots(), epoch="later"))) == stamps(site)


def test_a_submission_whose_pilot_has_ended_is_observed_until_its_batch_job_has_gone(site: Site) -> None:
    bench = site.bench
    [row, *_] = pilots.live(bench.connection, "batch")
    bench.do(lambda tx: end_silent_pilot(bench.pool, tx, row, PilotEnd.LEASE_OVER, "silent", bench.now))
    of_row = row.stamp.partition("/")[0]
    for _ in range(2):
        assert of_row in observed(site)
        site.cycle()
        assert site.director.memory.orphans == 1
    site.batch.end(row.batch_id)
    for _ in range(2):
        bench.now += 1.0
        site.cycle()
    assert site.director.memory.orphans == 0
    assert of_row not in site.director.unchanged or observed(site) == []


def test_a_submission_with_a_killed_pilot_is_observed(site: Site) -> None:
    bench = site.bench
    [row, *_] = pilots.live(bench.connection, "batch")
    ids = [PilotId(row.id)]
    bench.do(
        lambda tx: order_to_leave(
            bench.pool, tx, ids, LeaveOrder.KILL, actor="user:root", reason="", now=bench.now
        )
    )
    assert observed(site) == [row.stamp.partition("/")[0]]


def test_ended_submissions_are_forgotten(site: Site) -> None:
    assert site.director.unchanged
    site.settle()
    site.cycle()
    assert site.director.unchanged == {}


@pytest.mark.parametrize("started", [True, False])
def test_a_pilot_whose_submission_was_not_acknowledged_gets_its_batch_id(
    tmp_path: Path, started: bool
) -> None:
    site = Site(tmp_path)
    site.bench.submit(1)
    site.cycle("after the submission")
    if started:
        # Somebody else has released it.
        site.batch.change(site.batch.jobs[0].stamp, NativeState.HELD, NativeState.WAITING)
        site.start_pilots()
    [row] = pilots.live(site.bench.connection, "batch")
    assert row.batch_id == ""
    site.cycle()
    [row] = pilots.live(site.bench.connection, "batch")
    assert row.batch_id == site.batch.jobs[0].batch_id
    site.close()


@pytest.mark.parametrize("jobs", [0, 1], ids=["idle", "with a job"])
def test_a_batch_job_that_outlives_its_pilot_is_shown_and_cancelled_after_settle(
    site: Site, jobs: int
) -> None:
    """A pilot that was given up may come back with a result: its batch job is left to its time."""
    bench = site.bench
    [row, *others] = pilots.live(bench.connection, "batch")
    assert others, "other pilots of the CE live on"
    paper = site.papers[row.batch_id][1]
    if jobs:
        paper.hold()
    ended = bench.now
    bench.do(lambda tx: end_silent_pilot(bench.pool, tx, row, PilotEnd.LEASE_OVER, "silent", bench.now))
    site.cycle()
    [ce] = summaries(bench.pool.policy, bench.connection, bench.now, names=["batch"])
    assert (ce.orphans, ce.orphans_since) == (1, ended)
    assert orphans_text(ce, ended + 60.0).startswith(
        "1 batch job counts as running, though the pilots ended 60 s ago"
    )
    listed = {job.batch_id: job.reason for job in listed_jobs(site.batch, "batch", bench.connection)}
    assert listed[row.batch_id] == "its pilot has ended"
    bench.now += SETTLE
    site.cycle()
    left = {job.batch_id for job in site.batch.jobs if job.state is not NativeState.ENDED}
    assert (row.batch_id in left) is bool(jobs)


def test_an_error_of_the_batch_system_has_its_age_and_a_success_clears_it(site: Site) -> None:
    bench = site.bench

    def told() -> tuple[str, str]:
        [ce] = summaries(bench.pool.policy, bench.connection, bench.now, names=["batch"])
        return ce.state, ce.reason

    def list_now(listing: BatchListing) -> None:
        bench.do(lambda tx: begin_observation(site.director, tx, listing, bench.now))

    list_now(BatchListing(failure="log in again"))
    bench.now += 50.0
    assert told() == ("unreachable", "log in again (asked 50 s ago)")
    bench.do(lambda tx: request_probe(bench.pool.ids, tx, "batch", by="alice", now=bench.now))
    row = ce_probes.of_ce(bench.connection, "batch")
    assert row is not None
    bench.now += 60.0
    ce = bench.pool.policy.ces["batch"]
    assert account(bench.connection, row, ce, "", bench.now)[0].state is StepState.WAITING, "that was before"
    list_now(BatchListing(failure="log in again"))
    assert account(bench.connection, row, ce, "", bench.now)[0].state is StepState.FAILED
    list_now(site.batch.list_pilots())
    assert account(bench.connection, row, ce, "", bench.now)[0].state is StepState.OK
    assert told()[0] != "unreachable"


def test_the_time_of_a_wait_is_that_of_its_reason() -> None:
    held = CeWait("held by root", "user", 1, 100.0, 158.0)
    assert wait_text(held, 200.0) == "held by root, for 42 s"
    assert wait_text(replace(held, since=None), 200.0) == "held by root, submitted 2 min ago"
