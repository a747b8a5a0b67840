"""Directors submit within the budget of their CE, and every server can explain it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from pilotage.core.policy.budget import BudgetStatus
from pilotage.outside.batch.submission import NativeState
from pilotage.services.director.budgets import status_of
from pilotage.services.director.ce_director import CeDirector
from pilotage.services.director.ce_status import summaries
from pilotage.services.director.local_orders import LocalOrders
from pilotage.services.director.ordering import order_pilots
from tests.unit.services import test_batch_director as batch
from tests.unit.services.bench import LEASE, NODE, POLICY, Bench
from tests.unit.services.test_batch_director import Site
from tests.unit.services.test_costs import book_all

Make = Callable[..., Site]
HOUR = 3600.0


@pytest.fixture
def make(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Make]:
    made: list[Site] = []

    def with_budget(budget: str, settle: float = batch.SETTLE) -> Site:
        """`settle`: seconds for which a batch job may outlive its pilot, among others."""
        text = batch.BATCH_POLICY.replace("wall = 100000", f'wall = 3600\nbudget = "{budget}"')
        text = text.replace(f"settle = {batch.SETTLE}", f"settle = {settle}")
        monkeypatch.setattr(batch, "BATCH_POLICY", text)
        made.append(Site(tmp_path))
        return made[-1]

    yield with_budget
    for site in made:
        site.close()


def status(site: Site) -> BudgetStatus:
    bench = site.bench
    known = status_of(bench.connection, "batch", bench.pool.policy.ces["batch"], bench.now)
    assert known is not None
    return known


def test_no_submission_could_exceed_the_budget(make: Make) -> None:
    site = make("2.5 core-h / 1 d")
    site.bench.submit(20)
    site.cycle()
    assert len(site.batch.jobs) == 2, "three would wait without the budget"
    assert (status(site).used, status(site).committed, status(site).room) == (0, 2 * HOUR, 0)
    site.start_pilots()
    for _, paper in site.papers.values():
        offer = paper.hold()
        site.bench.now += 30
        paper.finish(offer)
    for _, paper in site.papers.values():
        paper.send(leaving="idle")
    for batch_id, (job, _) in list(site.papers.items()):
        site.end(batch_id, job)
    # Both ran for a minute: the rest of their wall time is free again, as the next iteration sees.
    site.cycle()
    site.cycle()
    assert len(site.batch.jobs) == 2
    assert status(site).committed == 2 * 60 + 2 * HOUR
    book_all(site.bench)
    assert (status(site).used, status(site).committed) == (120, 2 * HOUR)
    site.bench.later(25 * HOUR)
    assert status(site).used == 0, "the window has passed"
    site.settle()


def test_a_pilot_whose_lease_is_over_may_run_on(make: Make) -> None:
    site = make("1.5 core-h / 1 d", settle=HOUR)
    site.bench.submit(5)
    site.cycle()
    site.start_pilots()
    site.bench.later(LEASE + 1)
    site.bench.duties()
    site.cycle()
    book_all(site.bench)
    assert site.live_pilots() == 0
    assert site.batch.jobs[0].state is NativeState.RUNNING
    for _ in range(3):
        site.bench.later(60)
        site.cycle()
        book_all(site.bench)
        assert len(site.batch.jobs) == 1, "its batch job may use its whole wall time"
        assert status(site).used + status(site).committed == pytest.approx(HOUR)
    lost = site.bench.connection.execute("SELECT sum(lost) FROM costs").fetchone()[0]
    assert lost == pytest.approx(LEASE + 1 + 180), "also after its lease"
    [(batch_id, (job, _))] = site.papers.items()
    site.end(batch_id, job)
    site.bench.later(60)
    site.cycle()
    site.cycle()
    assert status(site).committed == HOUR, "of a new pilot"
    assert len(site.batch.jobs) == 1
    site.settle()


def test_a_batch_job_that_outlives_its_pilot_counts_to_its_own_end(make: Make) -> None:
    """The pilot has said that it leaves. Its batch job has the cores until a listing lacks it."""
    site = make("1.5 core-h / 1 d", settle=HOUR)
    site.bench.submit(1)
    site.cycle()
    site.start_pilots()
    [(batch_id, (job, paper))] = site.papers.items()
    offer = paper.hold()
    site.bench.now += 30
    paper.finish(offer)
    paper.send(leaving="idle")
    assert site.live_pilots() == 0
    for _ in range(4):
        site.bench.later(60)
        site.cycle()
        book_all(site.bench)
        assert status(site).used + status(site).committed == pytest.approx(HOUR), "it may use its wall time"
    site.end(batch_id, job)
    site.bench.later(60)
    site.cycle()
    site.cycle()
    book_all(site.bench)
    seconds = site.bench.connection.execute("SELECT sum(payload), sum(idle), sum(lost) FROM costs").fetchone()
    assert seconds == pytest.approx((30, 240, 0))
    assert status(site).committed == 0
    site.settle()


def test_a_batch_job_that_never_calls_counts_from_its_first_listing(make: Make) -> None:
    site = make("1 core-h / 1 d")
    site.bench.submit(1)
    site.cycle()
    [job] = site.batch.start()
    site.cycle()
    site.bench.later(100)
    site.batch.end(job.batch_id)
    site.bench.later(batch.SETTLE)
    site.cycle()
    site.bench.later(batch.SETTLE)
    site.cycle()
    book_all(site.bench)
    [lost] = site.bench.connection.execute("SELECT lost FROM costs").fetchone()
    assert lost >= 100
    site.settle()


def test_the_ce_and_why_tell_of_the_budget(make: Make) -> None:
    site = make("1 core-h / 1 d")
    site.bench.submit(5)
    site.cycle()
    site.cycle()
    bench = site.bench
    known = {ce.name: ce for ce in summaries(bench.pool.policy, bench.connection, bench.now)}
    ce = known["batch"]
    assert (ce.state, ce.budget and (ce.budget.committed, ce.budget.room)) == ("spent", (HOUR, 0))
    assert ce.reason.startswith("budget 1 core-h / 1 d: 0 core-h are used, pilots may use 1 more")
    assert known["local"].budget is None
    assert bench.pool.provisioning.directors["batch"].budget == ce.reason
    site.settle()


def test_a_wall_time_that_is_too_short_for_any_job_is_shown(tmp_path: Path) -> None:
    bench = Bench(tmp_path, POLICY.replace("[ces.local]", "[ces.local]\nwall = 500"))
    [_, local] = summaries(bench.pool.policy, bench.connection, bench.now)
    assert (local.name, local.state) == ("local", "unusable")
    assert local.reason.startswith("wall = 500 leaves 470 s of CPU time for jobs")
    assert local.reason.endswith("no job fits; wall = 532 is enough")
    bench.end()


def test_the_local_ce_keeps_its_budget(tmp_path: Path) -> None:
    text = POLICY.replace(
        "[ces.local]", '[ces.local]\nwall = 3600\nprocessors = 4\nbudget = "2 core-h / 1 d"'
    )
    bench = Bench(tmp_path, text)
    director = CeDirector("local", LocalOrders(NODE), local=True)
    bench.submit(5)
    assert len(bench.do(lambda tx: order_pilots(director, bench.pool, tx, bench.now))) == 2
    assert bench.do(lambda tx: order_pilots(director, bench.pool, tx, bench.now)) == []
    assert bench.pool.provisioning.directors["local"].budget
    bench.check()
    bench.end()
