"""One count of the tries of a piece, no second try of a missing input at its place, and pilots with enough time."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pilotage.core.requests.specification import Retry
from pilotage.core.workqueue.states import ElementState
from tests.unit.services.bench import POLICY, Bench, Paper
from tests.unit.services.request_bench import RequestBench

SITES = """
[sites.there]
[ces.there]
site = "there"
owners = "any"
[requests]
cooloff_data = 10.0
cooloff_growth = "default"
cooloff_place = 10.0
"""


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    made = Bench(tmp_path, POLICY + SITES)
    yield made
    made.end()


def fail(pilot: Paper, failure: str, message: str = "") -> None:
    [offer] = pilot.take(1)
    pilot.confirm(offer)
    pilot.finish(offer, failure=failure, message=message)


def rows(bench: Bench) -> list[Any]:
    return bench.connection.execute(
        "SELECT state, retries, message, avoided_sites FROM element_jobs ORDER BY id"
    ).fetchall()


def again(of_requests: RequestBench) -> int:
    """Roll up, wait for the pause, and release what was made again."""
    of_requests.roll_up()
    of_requests.bench.now += 60.0
    of_requests.make_again()
    return of_requests.release()


def test_a_missing_input_is_tried_once_at_each_site(bench: Bench) -> None:
    of_requests = RequestBench(bench)
    of_requests.agent()
    request = of_requests.request()
    element = of_requests.element(request, 1)
    assert of_requests.release() == 1
    here, there = bench.pilot(), bench.pilot("there")
    fail(here, "input", "input file /data/a: no such file")
    # The pool itself does not try it again.
    assert of_requests.jobs() == {"released": 1}
    assert again(of_requests) == 1
    assert rows(bench)[0][3] == '["here"]'
    assert here.take(1) == []
    fail(there, "input", "input file /data/a: no such file")
    assert again(of_requests) == 0
    [(state, retries, message, avoided)] = rows(bench)
    assert (state, retries, avoided) == ("exhausted", 1, '["here", "there"]')
    assert message.endswith("no such file; it failed 2 times, and no other site may read its input")
    assert of_requests.element_state(element) == ElementState.FAILED
    assert bench.connection.execute("SELECT count(*) FROM attempts").fetchone()[0] == 2


def test_tries_in_the_pool_and_of_the_request_have_one_count(bench: Bench) -> None:
    """The node failed in each try of the pool: these are the tries that the message tells."""
    of_requests = RequestBench(bench)
    of_requests.agent()
    request = of_requests.request(retry=Retry(max_retries=3))
    of_requests.element(request, 1)
    of_requests.release()
    pilot = bench.pilot()
    for _ in range(3):
        fail(pilot, "node", "full disk")
        bench.later(30.0)
    assert bench.connection.execute("SELECT tries FROM job_outcomes").fetchall() == [(3,)]
    assert again(of_requests) == 1
    assert rows(bench)[0][:2] == ("cooloff", 3) or rows(bench)[0][:2] == ("released", 3)
    fail(pilot, "node", "full disk")
    bench.later(30.0)
    fail(pilot, "node", "full disk")
    bench.later(30.0)
    fail(pilot, "node", "full disk")
    assert again(of_requests) == 0
    [(state, _, message, _)] = rows(bench)
    attempts = bench.connection.execute("SELECT count(*) FROM attempts").fetchone()[0]
    assert state == "exhausted"
    assert message == f"node: full disk; it failed {attempts} times"


def times(bench: Bench) -> list[tuple[int, int]]:
    """CPU and wall time by which the queues with waiting jobs are told apart."""
    entries = [entry for entry in bench.pool.queues.index.entries.values() if entry.waiting]
    return sorted((entry.identity.cpu_time, entry.identity.wall_time) for entry in entries)


@pytest.mark.parametrize(
    ("per_event", "more", "expected"),
    [
        (1.0, {}, (500, 0)),
        (300.0, {}, (5000, 0)),
        (300.0, {"processors": 8}, (500, 0)),
        (100_000.0, {}, (300_000, 601_200)),
        (300.0, {"cpu_time": 40_000}, (50_000, 0)),
        (100_000.0, {"wall_time": 600}, (300_000, 600)),
    ],
)
def test_jobs_match_pilots_with_enough_time_for_their_events(
    bench: Bench, per_event: float, more: dict[str, Any], expected: tuple[int, int]
) -> None:
    """10 events of the given time. An estimate is bounded by what CEs give. The request's own numbers stand."""
    of_requests = RequestBench(bench)
    of_requests.agent()
    request = of_requests.request(splitting={"time_per_event": per_event}, **more)
    of_requests.element(request, 1, events=10)
    assert of_requests.release() == 1
    assert times(bench) == [expected]
    [description] = of_requests.details(request)
    assert description["names"] == ["element_job"]


def test_the_estimate_is_no_limit_of_the_job(bench: Bench) -> None:
    of_requests = RequestBench(bench)
    of_requests.agent()
    of_requests.element(of_requests.request(splitting={"time_per_event": 300.0}), 1, events=10)
    of_requests.release()
    [offer] = bench.pilot().take(1)
    assert (offer.payload.cpu_time, offer.payload.wall_time) == (0, 0)


def test_without_a_given_time_the_done_jobs_of_the_step_tell_it(bench: Bench) -> None:
    of_requests = RequestBench(bench)
    of_requests.agent()
    request = of_requests.request()
    of_requests.element(request, 2, events=10)
    of_requests.release()
    assert times(bench) == [(500, 0)]
    pilot = bench.pilot()
    offers = pilot.take(2)
    for offer in offers:
        pilot.confirm(offer)
    bench.now += 6000.0
    for offer in offers:
        pilot.finish(offer, wall=6000.0, files=[])
    of_requests.roll_up()
    of_requests.element(request, 1, events=20)
    of_requests.release()
    assert times(bench) == [(500, 0), (50_000, 0)]
