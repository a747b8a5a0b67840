"""Listings that lie: what contradicts an absence, how a release is proved, and waits that are ended."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pilotage.core.pilots.waits import DAY, WaitClass
from pilotage.outside.batch.submission import ListedTask, NativeState
from pilotage.services.director.accounted_ends import with_accounted
from pilotage.services.director.listing_comparison import compare
from pilotage.services.director.next_step import MOST_RELEASES
from pilotage.services.director.observing import observe_some
from pilotage.store.tables import pilot_submissions, pilots
from pilotage.store.tables.pilot_submissions import PilotSubmissionRow
from tests.unit.services.test_batch_director import SETTLE, Site

HEARTBEAT = 10.0


def with_running_jobs(site: Site, count: int = 3) -> dict[str, object]:
    """Pilots that each run a job: batch id → offer."""
    site.bench.submit(count)
    site.cycle()
    site.start_pilots()
    site.cycle()
    return {batch_id: paper.hold() for batch_id, (_, paper) in site.papers.items()}


def heartbeats(site: Site, seconds: float) -> None:
    """Time passes. Every pilot speaks, and the director observes, at each heartbeat."""
    for _ in range(int(seconds / HEARTBEAT)):
        site.bench.now += HEARTBEAT
        for _, paper in site.papers.values():
            paper.send()
        site.cycle()


def states(site: Site) -> list[str]:
    return sorted(row.state for row in pilots.live(site.bench.connection, "batch"))


def finish_all(site: Site, offers: dict[str, object]) -> None:
    for batch_id, (_, paper) in site.papers.items():
        assert paper.finish(offers[batch_id]) == "accepted"  # type: ignore[arg-type]
    assert {site.bench.job(job)["attempt"] for job in site.bench.pool and range(1, len(offers) + 1)} == {1}


def test_a_listing_that_says_nothing_for_long_ends_no_pilot_that_lives(site: Site) -> None:
    offers = with_running_jobs(site)
    site.batch.fault = "listing-lies"
    heartbeats(site, 5 * SETTLE)
    assert states(site) == ["Running"] * 3
    [ce] = [row for row in site.summaries() if row.name == "batch"]
    assert ce.unlisted == 3
    site.batch.fault = ""
    site.cycle()
    [ce] = [row for row in site.summaries() if row.name == "batch"]
    assert ce.unlisted == 0
    finish_all(site, offers)


def test_a_pilot_that_is_silent_and_absent_for_a_settle_time_is_lost(site: Site) -> None:
    with_running_jobs(site)
    site.batch.fault = "listing-lies"
    heartbeats(site, SETTLE)
    site.bench.now += SETTLE - 1
    site.cycle()
    assert states(site) == ["Running"] * 3
    site.bench.now += 1
    site.cycle()
    assert states(site) == []


def test_an_empty_listing_that_a_pilot_contradicts_proves_nothing_about_waiting_ones(site: Site) -> None:
    with_running_jobs(site, 1)
    site.bench.submit(2)
    site.cycle()
    assert states(site) == ["Running", "Waiting", "Waiting"]
    site.batch.fault = "listing-lies"
    heartbeats(site, 3 * SETTLE)
    assert states(site) == ["Running", "Waiting", "Waiting"]
    assert len(site.batch.jobs) == 3, "no further pilots came for the same jobs"


def test_each_pilot_of_an_array_has_an_absence_of_its_own(site: Site) -> None:
    site.bench.submit(3)
    site.cycle()
    site.cycle()
    first, second, _ = sorted(site.batch.jobs, key=lambda job: job.index)
    site.batch.end(first.batch_id)
    site.cycle()
    site.bench.now += SETTLE - 1
    site.batch.end(second.batch_id)
    site.cycle()
    site.bench.now += 1
    site.cycle()
    live = {row.stamp for row in pilots.live(site.bench.connection, "batch")}
    assert f"{first.stamp}/0" not in live
    assert f"{first.stamp}/1" in live, "it was absent for one second"


def test_an_accounting_that_says_running_contradicts_the_listing(site: Site) -> None:
    with_running_jobs(site, 1)
    bench, director = site.bench, site.director
    [job] = site.batch.jobs
    accounted = ListedTask(job.stamp, job.index, job.batch_id, NativeState.RUNNING, "RUNNING", "", "", "1")
    site.batch.fault = "listing-lies"
    for _ in range(5):
        bench.now += SETTLE
        listing = site.batch.list_pilots()
        compared = compare(bench.connection, "batch", director.unchanged, listing, bench.now)
        told = with_accounted(compared, [accounted])
        bench.do(
            lambda tx, told=told: observe_some(director, bench.pool, tx, told, told.observations, bench.now)
        )
        assert states(site) == ["Running"]


def test_pilots_that_were_given_up_and_are_listed_again_keep_their_jobs(site: Site) -> None:
    offers = with_running_jobs(site)
    site.batch.fault = "listing-lies"
    site.cycle()
    site.bench.now += SETTLE
    site.cycle()
    assert states(site) == []
    site.batch.fault = ""
    site.cycle()
    assert len(site.batch.jobs) == 3, "none is cancelled: they may come back"
    for batch_id, (_, paper) in site.papers.items():
        assert paper.stopped(offers[batch_id]) == []  # type: ignore[arg-type]
    assert states(site) == ["Running"] * 3
    site.cycle()
    assert len(pilot_submissions.live(site.bench.connection, "batch")) == 1, "listings watch them again"
    finish_all(site, offers)


def submission(site: Site) -> PilotSubmissionRow:
    [row] = pilot_submissions.live(site.bench.connection, "batch")
    return row


def test_only_a_listing_proves_a_release(site: Site) -> None:
    site.bench.submit(1)
    site.batch.fault = "release-lies"
    site.cycle()
    assert submission(site).phase == "releasing"
    site.batch.fault = ""
    site.cycle()
    assert submission(site).phase == "releasing"
    site.cycle()
    assert submission(site).phase == "released"
    assert [job.state for job in site.batch.jobs] == [NativeState.WAITING]


@pytest.mark.parametrize("remembers", [False, True], ids=["forgets ended jobs", "lists ended jobs"])
def test_releases_without_effect_have_a_limit(site: Site, remembers: bool) -> None:
    site.bench.submit(1)
    site.batch.fault = "release-lies"
    for _ in range(MOST_RELEASES):
        site.cycle()
        assert submission(site).phase == "releasing"
    cancelled = site.batch.jobs[0]
    site.cycle()
    site.cycle()
    assert not site.batch.jobs
    if remembers:
        site.batch.jobs.append(replace(cancelled, state=NativeState.ENDED))
    assert "after 5 releases" in site.director.memory.trouble
    site.cycle()
    assert states(site) == []
    site.batch.jobs.clear()
    site.batch.fault = ""


@pytest.mark.parametrize(
    ("wait", "seconds"),
    [(WaitClass.IMPOSSIBLE, SETTLE), (WaitClass.ERROR, SETTLE), (WaitClass.SITE, 7 * DAY)],
)
def test_a_wait_that_does_not_end_is_ended_at_its_deadline(
    site: Site, wait: WaitClass, seconds: float
) -> None:
    site.bench.submit(1)
    site.cycle()
    [job] = site.batch.jobs
    site.batch.waits[job.stamp] = "BadConstraints", wait
    site.cycle()
    [ce] = [row for row in site.summaries() if row.name == "batch"]
    [told] = ce.waits
    assert (told.reason, told.wait, told.action) == ("waiting: BadConstraints", str(wait), "cancel")
    assert told.since is not None
    assert told.deadline == told.since + seconds
    site.bench.now += seconds - 1
    site.cycle()
    assert not site.director.memory.trouble
    site.bench.now += 1
    site.cycle()
    assert "waiting: BadConstraints" in site.director.memory.trouble
    assert site.director.memory.alike == 1
    for _ in range(3):
        site.cycle()
        site.bench.now += SETTLE
    assert not [known for known in site.batch.jobs if known.stamp == job.stamp]
    assert f"{job.stamp}/0" not in {row.stamp for row in pilots.live(site.bench.connection, "batch")}


def test_a_pilot_may_wait_for_its_turn_for_ever(site: Site) -> None:
    site.bench.submit(1)
    site.cycle()
    [job] = site.batch.jobs
    site.batch.waits[job.stamp] = "Priority", WaitClass.TRANSIENT
    for _ in range(5):
        site.cycle()
        site.bench.now += 30 * DAY
    assert job in site.batch.jobs
    site.batch.waits.clear()
