"""Jobs that ask for disk: the pilots that get them, the words about their wait, and the pilots ordered for them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pytest

from pilotage.core.jobs.parsers import from_yaml
from pilotage.core.policy import Matching
from pilotage.core.queues.identity import QueueIdentity, size_bucket
from pilotage.core.queues.wait_reason import Reason
from pilotage.services.director.ce_director import CeDirector
from pilotage.services.director.ce_status import summaries
from pilotage.services.director.demand import post_orders
from pilotage.services.director.iteration_orders import IterationOrders
from pilotage.services.director.list_match import list_match
from pilotage.services.director.ordering import order_pilots
from tests.unit.services.bench import NODE, POLICY, Bench
from tests.unit.services.iterations import run_iteration
from tests.unit.services.request_bench import RequestBench
from tests.unit.services.test_submission_warnings import bench_of, told
from tests.unit.services.test_why import why_job

TWO_SITES = POLICY + '[sites.there]\n[ces.far]\nsite = "there"\nowners = "any"\npilot_disk = 100000\n'
GB = 1024


@pytest.fixture
def far(tmp_path: Path) -> Iterator[Bench]:
    bench = Bench(tmp_path, TWO_SITES)
    yield bench
    bench.check()
    bench.end()


@pytest.mark.parametrize(("asked", "node"), [("20 GB", 20 * GB), ("512 MB", 512), ("1 TB", GB * GB)])
def test_a_job_runs_on_a_node_of_just_its_size(bench: Bench, asked: str, node: int) -> None:
    disk = from_yaml(f"executable: a\ndisk: {asked}").description.disk
    assert disk == node
    [job] = bench.submit(disk=disk)
    pilot = bench.pilot()
    response = pilot.send(take=pilot.asked(disk=node - 1))
    assert (response.offers, response.no_match) == ([], {"disk": 1})
    [offer] = pilot.take(disk=node)
    assert (offer.job, offer.payload.disk) == (job, node)


def test_disk_moves_up_to_the_next_bucket_of_the_policy(bench: Bench) -> None:
    buckets = Matching().disk_buckets
    assert [size_bucket(gigabytes * GB, buckets) // GB for gigabytes in (1, 7, 11, 50, 1024, 1025)] == [
        *(1, 8, 12, 50, 1024, 2048)
    ]
    assert bench.prepared(disk=7 * GB).identity.disk == 8 * GB
    assert bench.prepared(disk=0).identity.disk == 0


def test_a_pilot_that_does_not_tell_its_disk_gets_any_job(bench: Bench) -> None:
    [job] = bench.submit(disk=500 * GB)
    assert [offer.job for offer in bench.pilot().take(disk=0)] == [job]


def test_the_offer_shrinks_with_each_job_of_one_call(bench: Bench) -> None:
    jobs = bench.submit(5, disk=20 * GB)
    pilot = bench.pilot(processors=8)
    assert len(pilot.take(8, processors=8, disk=50 * GB)) == 2
    assert len(pilot.take(8, processors=8, disk=19 * GB)) == 0
    [small] = bench.submit()
    assert [offer.job for offer in pilot.take(8, processors=8, disk=1)] == [small]
    assert len(pilot.take(8, processors=8, disk=GB * GB)) == len(jobs) - 2


def test_the_free_disk_of_each_take_counts(bench: Bench) -> None:
    bench.submit(3, disk=20 * GB)
    pilot = bench.pilot()
    assert [len(pilot.take(disk=disk)) for disk in (30 * GB, 10 * GB, 25 * GB, 5 * GB)] == [1, 0, 1, 0]


def test_requirements_see_the_free_disk(bench: Bench) -> None:
    [job] = bench.submit(requirements="other.Disk >= 30000")
    pilot = bench.pilot()
    assert pilot.take(disk=29999) == []
    assert pilot.take(disk=0) == [], "not known"
    assert [offer.job for offer in pilot.take(disk=30000)] == [job]


def test_a_pilot_learns_its_part_of_the_disk_from_the_policy(far: Bench) -> None:
    assert (far.pilot("far").terms.disk, far.pilot("local").terms.disk) == (100000, 0)


def test_why_names_the_disk_and_a_demand_that_would_fit(bench: Bench) -> None:
    [job] = bench.submit(disk=4000)
    assert bench.pilot(processors=2).take(processors=2, disk=3500) == []
    answer = why_job(bench, job)
    assert (answer.reason, answer.detail) == (Reason.NEEDS, "disk")
    assert answer.needs["disk"] == "4096 MB (next bucket above the requested 4000 MB)"
    assert [(one.text, one.slots, one.sites) for one in answer.openings] == [
        ("disk <= 1024 MB", 2, {"here": 2}),
        ("disk <= 3072 MB", 1, {"here": 1}),
    ]
    assert "more disk is requested than a node has free" in answer.summary


def test_a_submission_is_warned_of_disk_that_no_node_has(tmp_path: Path) -> None:
    bench = bench_of(tmp_path, "any")
    bench.do(lambda tx: tx.put(bench.pool.ces.nodes, "local", replace(NODE, disk=9000)))
    assert told(bench, disk=8000) == []
    [warning] = told(bench, disk=12000)
    assert (
        "it requests 12,000 MB of disk (bucket 12,288 MB); the most free at CE local is 9,000 MB" in warning
    )
    bench.end()


# --- pilots that have not started

BATCH = """
[ces.small]
site = "here"
type = "slurm"
owners = "any"
pilot_processors = 8
pilot_disk = 40960
[ces.large]
site = "here"
type = "slurm"
owners = "any"
pilot_processors = 8
pilot_disk = 204800
[ces.silent]
site = "here"
type = "slurm"
owners = "any"
pool = "Other"
[director]
demand = "dirac"
DefaultSubmitPools = ["Batch"]
"""


@pytest.fixture
def batch(tmp_path: Path) -> Iterator[Bench]:
    bench = Bench(tmp_path, POLICY + BATCH)
    yield bench
    bench.end()


def ordered(bench: Bench) -> dict[str, int]:
    """By CE: the pilots that one iteration orders and submits."""
    directors = [CeDirector(name, IterationOrders(NODE.platform)) for name in ("small", "large", "silent")]

    def cycle() -> dict[str, int]:
        made: dict[str, int] = {}
        for director in directors:
            for intent in bench.do(lambda tx, d=director: order_pilots(d, bench.pool, tx, bench.now)):
                made[director.ce] = made.get(director.ce, 0) + intent.order.pilots
        return made

    cycle()
    work = run_iteration(bench.pool, bench.connection, Random(1), bench.now)
    bench.do(lambda tx: post_orders(bench.pool, tx, work))
    return cycle()


def test_pilots_are_submitted_where_they_offer_enough(batch: Bench) -> None:
    batch.submit(disk=100 * GB)
    assert list(ordered(batch)) == ["large"]


def test_waiting_pilots_count_for_the_jobs_that_their_disk_holds(batch: Bench) -> None:
    batch.submit(12, disk=100 * GB)
    pilots = ordered(batch)["large"]
    work = run_iteration(batch.pool, batch.connection, Random(1), batch.now)
    [queue] = work.facts.queues
    assert queue.waiting == 2 * pilots, "two jobs in each, and not eight"


def test_match_ce_tells_it(batch: Bench) -> None:
    ordered(batch)
    identity = QueueIdentity("alice", "physics", disk=100 * GB)
    rows = summaries(batch.pool.policy, batch.connection, batch.now)
    report = list_match(
        batch.pool, identity, [row for row in rows if row.name in BATCH], batch.now, ce="", limit=9
    )
    assert {answer.ce: answer.reason for answer in report.ces} == {
        "small": "more disk is requested than a node has free",
        "large": "",
        "silent": "",
    }


# --- requests


def test_a_job_of_a_request_asks_for_the_disk_of_its_estimate(far: Bench) -> None:
    """An element has 10 events a job: 10 x 2 GB are written."""
    made = RequestBench(far)
    made.agent()
    request = made.request(splitting={"size_per_event": 2_000_000.0})
    made.element(request, 2)
    assert made.release() == 2
    near, there = far.pilot("local"), far.pilot("far")
    assert near.take(2, processors=2, disk=10 * GB) == []
    [first] = there.take(2, processors=2, disk=30 * GB)
    assert first.payload.disk == 20 * GB
    assert len(near.take(2, processors=2, disk=20 * GB)) == 1


@pytest.mark.parametrize(
    ("request_", "disk"),
    [
        ({}, 0),
        ({"disk": 700}, 700),
        ({"disk": 700, "splitting": {"size_per_event": 2_000_000.0}}, 700),
        ({"splitting": {"size_per_event": 0.001}}, 512),
        ({"splitting": {"size_per_event": 1e12}}, None),
    ],
)
def test_the_requests_own_disk_stands_above_the_estimate(
    bench: Bench, request_: dict[str, Any], disk: int | None
) -> None:
    made = RequestBench(bench)
    made.agent()
    made.element(made.request(**request_), 1)
    made.release()
    [offer] = bench.pilot().take(disk=0)
    assert offer.payload.disk == disk if disk is not None else offer.payload.disk >= 10**9
