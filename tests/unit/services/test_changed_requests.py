"""Abort, force-complete, priority and lists of sites: they reach elements, made jobs and pool jobs."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from pilotage.core.requests.states import RequestState
from pilotage.services.workqueue.propagation import Propagation
from pilotage.store.tables import cancelling, requests
from tests.unit.services.bench import POLICY, Bench
from tests.unit.services.request_bench import RequestBench
from tests.unit.services.test_release_to_pool import run_all

TWO_SITES = POLICY + '[sites.there]\n[ces.far]\nsite = "there"\nowners = "any"\nlease = 300.0\n'


@pytest.fixture
def bench_policy() -> str:
    return TWO_SITES


@pytest.fixture
def of_requests(bench: Bench) -> RequestBench:
    made = RequestBench(bench)
    made.agent()
    return made


def change(bench: Bench, request: int, **facts: Any) -> None:
    def store(tx: Any) -> None:
        row = requests.for_change(tx.connection, request)
        assert row is not None
        changed = replace(row, propagating=True, **facts)
        requests.change_facts(tx.connection, row, changed, kind="test", actor="a", now=bench.now, detail="")

    bench.do(store)


def end(bench: Bench, request: int, state: RequestState) -> None:
    def store(tx: Any) -> None:
        row = requests.for_change(tx.connection, request)
        assert row is not None
        requests.move(tx.connection, row, state, actor="a", now=bench.now)
        requests.set_propagating(tx.connection, request, propagating=True)

    bench.do(store)


def propagate(of_requests: RequestBench, most: int = 2) -> None:
    bench = of_requests.bench
    for request in cancelling.propagating(bench.connection):
        run = Propagation(of_requests.work_queue, request)
        while not bench.do(lambda tx, run=run: run.run(tx, bench.now, most)):
            bench.check()


def is_settled(of_requests: RequestBench, request: int) -> bool:
    return request not in cancelling.propagating(of_requests.bench.connection)


def test_an_abort_ends_elements_without_an_agent_at_once(bench: Bench, of_requests: RequestBench) -> None:
    request = of_requests.request(state=RequestState.RUNNING_OPEN, closed=False)
    free = of_requests.element(request, 0, state="Available")
    offered = of_requests.element(request, 0, state="Negotiating")
    held = of_requests.element(request, 3, state="Acquired")
    split = of_requests.element(request, 10)
    of_requests.release()
    worker = bench.pilot()
    run_all(worker, 1)
    running = worker.hold()
    end(bench, request, RequestState.ABORTED)
    assert of_requests.release() == 0
    propagate(of_requests)
    assert worker.stopped(running) == [running.job]
    states = [of_requests.element_state(element) for element in (free, offered, held, split)]
    assert states == ["Canceled", "Canceled", "CancelRequested", "CancelRequested"]
    of_requests.roll_up()
    assert of_requests.element_state(split) == "Canceled"
    assert of_requests.jobs() == {"done": 1, "canceled": 12}
    assert of_requests.state(request) == "aborted"
    assert not is_settled(of_requests, request)
    acknowledge = "UPDATE elements SET finished_epoch = epoch WHERE id = ?"
    bench.do(lambda tx: tx.connection.execute(acknowledge, (held,)))
    propagate(of_requests)
    of_requests.advance(request)
    assert of_requests.element_state(held) == "Canceled"
    assert is_settled(of_requests, request)
    assert of_requests.state(request) == "aborted-completed"


def test_jobs_on_nodes_are_killed_before_anything_else(bench: Bench, of_requests: RequestBench) -> None:
    """Thousands of elements and made jobs may be left, and nodes go on with work that nobody wants."""
    request = of_requests.request(state=RequestState.RUNNING_OPEN, closed=False)
    of_requests.element(request, 1)
    of_requests.release()
    worker = bench.pilot()
    running = worker.hold()
    made = of_requests.element(request, 50)
    free = of_requests.element(request, 0, state="Available")
    end(bench, request, RequestState.ABORTED)
    run = Propagation(of_requests.work_queue, request)
    bench.do(lambda tx: run.run(tx, bench.now, 2))
    assert worker.stopped(running) == [running.job]
    assert [of_requests.element_state(element) for element in (made, free)] == ["Running", "Available"]
    assert of_requests.jobs()["made"] == 50


@pytest.mark.parametrize("seconds", [0, 1, 2, 3])
def test_an_aborted_request_ends_whatever_its_jobs_do(
    bench: Bench, of_requests: RequestBench, seconds: int
) -> None:
    request = of_requests.request()
    of_requests.element(request, 4)
    if seconds:
        of_requests.release()
    worker = bench.pilot()
    run_all(worker, seconds - 1)
    end(bench, request, RequestState.ABORTED)
    run_all(worker, 1)
    propagate(of_requests)
    of_requests.roll_up()
    propagate(of_requests)
    of_requests.advance(request)
    assert of_requests.state(request) == "aborted-completed"
    assert not worker.take()


def test_a_forced_request_still_merges(bench: Bench, of_requests: RequestBench) -> None:
    request = of_requests.request(types=("Processing", "Merge"), state=RequestState.RUNNING_CLOSED)
    processing = of_requests.element(request, 5)
    merge = of_requests.element(request, 2, step=1)
    of_requests.release()
    end(bench, request, RequestState.FORCE_COMPLETE)
    propagate(of_requests)
    of_requests.roll_up()
    assert of_requests.element_state(processing) == "Canceled"
    assert of_requests.element_state(merge) == "Running"
    assert of_requests.state(request) == "force-complete"
    assert run_all(bench.pilot(), 5) == 2
    of_requests.roll_up()
    assert of_requests.state(request) == "completed"
    propagate(of_requests)
    assert is_settled(of_requests, request)


def test_a_forced_request_releases_merges_only(bench: Bench, of_requests: RequestBench) -> None:
    request = of_requests.request(types=("Processing", "Merge"), state=RequestState.RUNNING_CLOSED)
    of_requests.element(request, 5)
    of_requests.element(request, 2, step=1)
    end(bench, request, RequestState.FORCE_COMPLETE)
    assert of_requests.release() == 2


def test_merges_of_a_forced_request_move_to_the_sites_of_its_new_list(
    bench: Bench, of_requests: RequestBench
) -> None:
    request = of_requests.request(
        types=("Processing", "Merge"), state=RequestState.RUNNING_CLOSED, sites=("here",)
    )
    of_requests.element(request, 1)
    of_requests.element(request, 2, step=1)
    end(bench, request, RequestState.FORCE_COMPLETE)
    assert of_requests.release() == 2
    for _ in range(2):
        # The second time, the first end of its other work is carried out.
        change(bench, request, sites=("there",))
        propagate(of_requests)
        assert not bench.pilot().take()
    assert run_all(bench.pilot("far"), 9) == 2


def test_a_priority_reaches_waiting_and_running_jobs(bench: Bench, of_requests: RequestBench) -> None:
    request = of_requests.request(priority=1)
    of_requests.element(request, 5)
    of_requests.release()
    worker = bench.pilot()
    held = worker.hold()
    change(bench, request, priority=600_000)
    propagate(of_requests)
    assert {bench.job(job)["user_priority"] for job in of_requests.pool_jobs()} == {10}
    worker.release(held)
    assert run_all(worker, 9) == 5
    assert is_settled(of_requests, request)


def test_waiting_jobs_move_to_the_sites_of_the_new_list(bench: Bench, of_requests: RequestBench) -> None:
    request = of_requests.request(sites=("here",))
    of_requests.element(request, 5)
    of_requests.release()
    here, there = bench.pilot(), bench.pilot("far")
    held = here.hold()
    assert not there.take()
    change(bench, request, sites=("there",))
    propagate(of_requests)
    assert not here.take()
    here.release(held)
    assert run_all(there, 9) == 5
    sites = bench.connection.execute("SELECT DISTINCT site FROM element_jobs").fetchall()
    assert [row[0] for row in sites] == ["there"]
    waited = next(job for job in of_requests.pool_jobs() if job != held.job)
    moves = bench.moves(waited)
    assert moves == ["Waiting", "Rescheduled", "Waiting", "Matched", "Running", "Done"]


def test_jobs_that_no_site_may_run_are_taken_back(bench: Bench, of_requests: RequestBench) -> None:
    request = of_requests.request(sites=("here",))
    element = of_requests.element(request, 3)
    of_requests.release()
    change(bench, request, sites=())
    propagate(of_requests)
    of_requests.roll_up()
    assert of_requests.jobs() == {"made": 3}
    assert of_requests.release() == 0
    change(bench, request, sites=("*",))
    propagate(of_requests)
    assert of_requests.release() == 3
    run_all(bench.pilot(), 3)
    of_requests.roll_up()
    assert of_requests.element_state(element) == "Done"


def test_a_change_during_its_propagation_is_carried_out_too(bench: Bench, of_requests: RequestBench) -> None:
    request = of_requests.request(priority=1)
    of_requests.element(request, 6)
    of_requests.release()
    change(bench, request, priority=600_000)
    run = Propagation(of_requests.work_queue, request)
    bench.do(lambda tx: run.run(tx, bench.now, 2))
    change(bench, request, priority=20_000)
    while not bench.do(lambda tx: run.run(tx, bench.now, 2)):
        pass
    assert {bench.job(job)["user_priority"] for job in of_requests.pool_jobs()} == {3}
    assert is_settled(of_requests, request)


def test_a_failed_slice_is_carried_out_again(bench: Bench, of_requests: RequestBench) -> None:
    request = of_requests.request(sites=("here",))
    of_requests.element(request, 4)
    of_requests.release()
    change(bench, request, sites=("there",))
    run = Propagation(of_requests.work_queue, request)

    def fails(tx: Any) -> None:
        run.run(tx, bench.now, 2)
        raise RuntimeError("the disk is full")

    for _ in range(2):
        with pytest.raises(RuntimeError):
            bench.do(fails)
        bench.check()
        bench.do(lambda tx: run.run(tx, bench.now, 2))
    while not bench.do(lambda tx: run.run(tx, bench.now, 2)):
        pass
    assert run_all(bench.pilot("far"), 9) == 4
