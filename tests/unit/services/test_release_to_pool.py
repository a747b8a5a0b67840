"""Made jobs go to the pool, run, and end; elements and requests follow."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any, get_args

import pytest

from pilotage.core.jobs.description import JobDescription
from pilotage.core.pilots.wall_time import cpu_time_of_new_pilot
from pilotage.core.policy.model import NORMAL_USER
from pilotage.core.policy.requests import Growth, Requests
from pilotage.core.requests.retries import PauseRule, RetryRules
from pilotage.core.requests.specification import Retry
from pilotage.core.requests.states import RequestState
from pilotage.services.requests import changes
from pilotage.services.requests.changes import Change
from pilotage.services.requests.rights import Actor
from pilotage.services.why.needs_wording import needs
from pilotage.store.engine.connection import SerializationFailure
from pilotage.store.tables import listing, work_queue_depth
from pilotage.store.tables.selections import JobSelection, Viewer
from tests.unit.services.bench import POLICY, Bench, Paper
from tests.unit.services.request_bench import RequestBench, limited


@pytest.fixture
def of_requests(bench: Bench) -> RequestBench:
    made = RequestBench(bench)
    made.agent()
    return made


def run_all(worker: Paper, count: int, **content: object) -> int:
    """Take and finish up to `count` jobs; returns their number."""
    for done in range(count):
        offers = worker.take()
        if not offers:
            return done
        assert worker.confirm(offers[0]) == "accepted"
        assert worker.finish(offers[0], **{"files": [], **content}) == "accepted"
    return count


def test_a_request_of_one_step_is_completed(bench: Bench, of_requests: RequestBench) -> None:
    request = of_requests.request()
    element = of_requests.element(request, 10)
    assert of_requests.release() == 10
    assert of_requests.jobs() == {"released": 10}
    assert run_all(bench.pilot(), 20) == 10
    of_requests.roll_up()
    assert of_requests.jobs() == {"done": 10}
    assert of_requests.element_state(element) == "Done"
    assert of_requests.progress(element) == {
        "jobs_done": 10, "jobs_failed": 0, "jobs_canceled": 0, "events_done": 100,
    }  # fmt: skip
    assert of_requests.way(request) == ["acquired", "running-open", "running-closed", "completed"]
    assert not bench.connection.execute("SELECT count(*) FROM job_outcomes").fetchone()[0]


def test_a_transaction_that_is_repeated_releases_the_same_jobs(
    bench: Bench, of_requests: RequestBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each commit fails at the first try; one pass releases all jobs, each once."""
    of_requests.element(of_requests.request(), 10)
    commit, tries = bench.connection.commit, count(1)

    def commit_at_second_try() -> None:
        if next(tries) % 2:
            raise SerializationFailure("the first try fails")
        commit()

    monkeypatch.setattr(bench.connection, "commit", commit_at_second_try)
    assert of_requests.release() == 10
    assert of_requests.jobs() == {"released": 10}
    monkeypatch.undo()
    assert run_all(bench.pilot(), 20) == 10


def test_a_pool_job_is_the_requests_and_has_its_place_and_priority(
    bench: Bench, of_requests: RequestBench
) -> None:
    request = of_requests.request(priority=60_000, types=("Merge",), sites=("here",))
    of_requests.element(request, 2)
    of_requests.release(most=100)
    [description] = of_requests.details(request)
    assert (description["job_type"], description["names"]) == ("Merge", ["element_job"])
    job = bench.job(of_requests.pool_jobs()[1])
    [element_job] = bench.connection.execute(
        "SELECT id FROM element_jobs WHERE job_id = ?", (job["id"],)
    ).fetchone()
    assert (job["parameters"], job["user_priority"]) == (f"[{element_job}]", 4)


def test_a_paused_request_releases_nothing_and_its_pool_jobs_go_on(
    bench: Bench, of_requests: RequestBench
) -> None:
    request, other = of_requests.request(), of_requests.request()
    element = of_requests.element(request, 10)
    assert of_requests.release(most=4) == 10
    of_requests.element(request, 5)
    of_requests.element(other, 2)

    def change(verb: Callable[..., object]) -> None:
        alice = Actor("alice", "physics", frozenset({NORMAL_USER}))
        bench.do(lambda tx: verb(tx, request, Change(alice, bench.now, "wait")))

    change(changes.pause)
    assert of_requests.release() == 2, "those of the other request"
    assert run_all(bench.pilot(), 20) == 12
    of_requests.roll_up()
    assert of_requests.element_state(element) == "Done"
    assert of_requests.jobs(request) == {"done": 10, "made": 5}
    change(changes.resume)
    assert of_requests.release() == 5
    run_all(bench.pilot(), 20)
    of_requests.roll_up()
    assert of_requests.state(request) == "completed"


def test_the_depth_of_the_work_queue_counts_unfinished_work_only(
    bench: Bench, of_requests: RequestBench
) -> None:
    for _ in range(2):
        request = of_requests.request(retry=Retry(max_retries=1, cooloff=100))
        of_requests.element(request, 3)
    of_requests.element(request, 5, state="Available")
    of_requests.element(of_requests.request(state=RequestState.ABORTED_COMPLETED), 9)
    of_requests.release(most=6)
    run_all(bench.pilot(), 1, exit_code=3)
    run_all(bench.pilot(), 1)
    of_requests.roll_up()
    bench.submit(4)
    depth = bench.do(lambda tx: work_queue_depth.read(tx.connection))
    assert sum(depth.requests.values()) == 2
    assert "aborted-completed" not in depth.requests
    assert (depth.elements["Running"], depth.elements["Available"]) == (2, 1)
    assert depth.jobs == {state: of_requests.jobs()[state] - 9 * (state == "made") for state in depth.jobs}
    assert depth.jobs["cooloff"] == 1


def test_users_jobs_leave_no_outcome(bench: Bench, of_requests: RequestBench) -> None:
    bench.submit(2)
    bench.submit(2, job_type="Processing")
    run_all(bench.pilot(), 4)
    assert not bench.connection.execute("SELECT count(*) FROM job_outcomes").fetchone()[0]


def test_a_failed_job_is_made_again_after_its_pause(bench: Bench, of_requests: RequestBench) -> None:
    request = of_requests.request(retry=Retry(max_retries=1, cooloff=100))
    element = of_requests.element(request, 2)
    of_requests.release()
    worker = bench.pilot()
    run_all(worker, 1, exit_code=3)
    run_all(worker, 1)
    of_requests.roll_up()
    assert of_requests.jobs() == {"done": 1, "cooloff": 1}
    bench.now += 100.0
    assert of_requests.make_again() == 0
    bench.now += 0.1
    assert of_requests.make_again() == 1
    assert of_requests.release() == 1
    run_all(worker, 1, exit_code=3)
    of_requests.roll_up()
    assert of_requests.jobs() == {"done": 1, "exhausted": 1}
    assert of_requests.element_state(element) == "Failed"
    assert of_requests.state(request) == "completed"
    failed = bench.connection.execute(
        "SELECT retries, exit_code, failure, message FROM element_jobs WHERE state = 'exhausted'"
    ).fetchone()
    assert tuple(failed) == (1, 3, "payload", "exit code 3; it failed 2 times")


def test_a_piece_that_failed_and_is_killed_with_its_request_keeps_its_error(
    bench: Bench, of_requests: RequestBench
) -> None:
    request = of_requests.request(retry=Retry(max_retries=5, cooloff=1))
    element = of_requests.element(request, 2)
    of_requests.release()
    run_all(bench.pilot(), 1, exit_code=3)
    of_requests.roll_up()
    bench.now += 2.0
    of_requests.make_again()
    of_requests.release()
    bench.do(
        lambda tx: tx.connection.execute(
            "UPDATE elements SET state = 'CancelRequested' WHERE id = ?", (element,)
        )
    )
    bench.act("kill", *[job for job in of_requests.pool_jobs() if bench.state(job) == "Waiting"])
    of_requests.roll_up()
    assert of_requests.jobs() == {"exhausted": 1, "canceled": 1}
    kept = "SELECT exit_code, failure, message FROM element_jobs WHERE state = 'exhausted'"
    [(code, failure, message)] = bench.connection.execute(kept).fetchall()
    assert (code, failure, message) == (3, "payload", "exit code 3")


RULES = """
[requests]
max_retries = 1
max_retries_merge = 0
cooloff_payload = 50.0
cooloff_growth = "linear"
longest_run = 500.0
"""


def test_the_policy_decides_the_retries_of_steps_that_name_none(tmp_path: Path) -> None:
    bench = Bench(tmp_path, POLICY + RULES)
    of_requests = RequestBench(bench)
    of_requests.agent()
    for kind in ("Processing", "Merge"):
        of_requests.element(of_requests.request(types=(kind,)), 1)
    of_requests.release()
    run_all(bench.pilot(), 2, exit_code=3)
    of_requests.roll_up()
    assert of_requests.jobs() == {"cooloff": 1, "exhausted": 1}
    [(pause,)] = bench.connection.execute(
        "SELECT not_before - ended FROM element_jobs WHERE state = 'cooloff'"
    )
    assert pause == 50.0
    bench.end()


def test_the_jobs_of_a_request_are_selected_now_and_later(bench: Bench, of_requests: RequestBench) -> None:
    first, second = of_requests.request(), of_requests.request()
    for request in (first, second):
        of_requests.element(request, 3)
    of_requests.release()
    bench.submit(2)
    of_first = of_requests.pool_jobs(first)
    assert len(of_first) == 3

    def selected(**more: Any) -> list[int]:
        return listing.job_ids(
            bench.connection, JobSelection(request=first, **more), Viewer("", everything=True), 0, 100
        )

    assert selected() == of_first
    assert selected(states=["Done"]) == []
    run_all(bench.pilot(), 10)
    bench.tidy()
    assert selected() == selected(states=["Done"]) == of_first, "from the history"
    assert selected(ids=of_first[:1]) == of_first[:1]
    assert selected(name="other") == []


def test_a_job_that_ran_for_too_long_is_not_made_again(tmp_path: Path) -> None:
    """The wall time of the attempt reaches the rule through the stored outcome."""
    bench = Bench(tmp_path, POLICY + RULES)
    of_requests = RequestBench(bench)
    of_requests.agent()
    of_requests.element(of_requests.request(), 2)
    of_requests.release()
    for pilot, wall in ((bench.pilot(), 500.0), (bench.pilot(), 500.5)):
        [offer] = pilot.take()
        pilot.confirm(offer)
        bench.now += wall
        pilot.finish(offer, exit_code=3, wall=wall, files=[])
    of_requests.roll_up()
    assert of_requests.jobs() == {"cooloff": 1, "exhausted": 1}
    [(message,)] = bench.connection.execute("SELECT message FROM element_jobs WHERE state = 'exhausted'")
    assert message == "exit code 3; it ran for more than 500 s"
    bench.end()


def test_the_growths_of_the_policy_are_those_of_the_rule() -> None:
    assert set(get_args(Growth)) == set(PauseRule)
    assert Requests().retry_rules() == RetryRules()


def test_every_end_reaches_the_roll_up(bench: Bench, of_requests: RequestBench) -> None:
    request = of_requests.request(retry=Retry(max_retries=0))
    of_requests.element(request, 3)
    of_requests.release()
    deleted, lost, killed = of_requests.pool_jobs(request)
    bench.act("kill", killed, deleted)
    bench.act("delete", deleted)
    for _ in range(10):
        worker = bench.pilot()
        for offer in worker.take():
            worker.confirm(offer)
        bench.later(400.0)
        bench.later(400.0)
    assert bench.state(lost) == "Failed"
    of_requests.roll_up()
    assert of_requests.jobs() == {"exhausted": 3}
    failures = bench.connection.execute("SELECT failure FROM element_jobs ORDER BY job_id").fetchall()
    assert [row[0] for row in failures] == ["", "lease-over", ""]


def test_nobody_reschedules_a_job_of_a_request(bench: Bench, of_requests: RequestBench) -> None:
    request = of_requests.request(retry=Retry(max_retries=0))
    of_requests.element(request, 1)
    of_requests.release()
    [job] = of_requests.pool_jobs()
    bench.act("kill", job)
    [(_, why)] = bench.act("reschedule", job).refused
    assert f"request {request}" in why


def test_a_request_stays_open_while_a_step_may_get_elements(bench: Bench, of_requests: RequestBench) -> None:
    request = of_requests.request(closed=False)
    of_requests.element(request, 1)
    of_requests.release()
    run_all(bench.pilot(), 1)
    of_requests.roll_up()
    assert of_requests.way(request) == ["acquired", "running-open"]


def test_the_limits_of_the_policy_hold(tmp_path: Path) -> None:
    bench = Bench(tmp_path, limited(POLICY, pending=5, running=2))
    of_requests = RequestBench(bench)
    low, high = of_requests.request(priority=1), of_requests.request(priority=9)
    agent = of_requests.agent()
    of_requests.element(low, 20, agent=agent)
    assert of_requests.release(most=2) == 5
    assert of_requests.release() == 0
    worker = bench.pilot()
    worker.hold()
    assert of_requests.release() == 1
    of_requests.element(high, 20, agent=agent)
    assert of_requests.release() == 1
    assert of_requests.jobs(high) == {"released": 1, "made": 19}
    bench.check()
    bench.end()


@pytest.mark.parametrize(("buckets", "wall_time"), [([50, 200, 10000], 0), ([50, 200], 300)])
def test_an_estimate_never_asks_for_more_time_than_a_pilot_is_given(
    tmp_path: Path, buckets: list[int], wall_time: int
) -> None:
    """Else one slow job would keep the next ones waiting for ever."""
    policy = POLICY.replace("lease =", "wall = 350\nlease =") + f"[matching]\ncpu_buckets = {buckets}\n"
    bench = Bench(tmp_path, policy)
    of_requests = RequestBench(bench)
    of_requests.agent()
    of_requests.element(of_requests.request(splitting={"time_per_event": 100.0}), 1)
    assert of_requests.release() == 1
    [entry] = bench.pool.queues.index.entries.values()
    assert (entry.identity.cpu_time, entry.identity.wall_time) == (200, wall_time)
    said = needs(entry.identity, JobDescription(executable="a"))
    assert said["CPU time"] == "200 s (an estimate)"
    assert said.get("wall time", "") == (f"{wall_time} s (an estimate)" if wall_time else "")
    assert bench.pilot().take(cpu_left=cpu_time_of_new_pilot(350, 1.0))
    bench.end()


def test_agents_share_the_limits(tmp_path: Path) -> None:
    bench = Bench(tmp_path, limited(POLICY, pending=6))
    of_requests = RequestBench(bench)
    request = of_requests.request()
    first, second = of_requests.agent(), of_requests.agent()
    of_requests.element(request, 20, agent=first)
    assert of_requests.release() == 3
    of_requests.element(request, 20, agent=second)
    assert of_requests.release() == 3
    gone = second + 1
    of_requests.element(request, 20, agent=gone)
    assert of_requests.release() == 0
    bench.end()


@pytest.mark.parametrize("agents", [1, 2, 3, 4, 7])
@pytest.mark.parametrize(("pending", "running"), [(4, 1), (1, 0), (5, 2)])
def test_a_maximum_is_never_exceeded(tmp_path: Path, agents: int, pending: int, running: int) -> None:
    """However many agents of however many teams share a site, and however many pilots ask there."""
    bench = Bench(tmp_path, limited(POLICY, pending=pending, running=running))
    of_requests = RequestBench(bench)
    for _ in range(agents):
        of_requests.element(of_requests.request(priority=1), 20, agent=of_requests.agent())
    for _ in range(3):
        of_requests.release()
        states = [bench.state(job) for (job,) in bench.connection.execute("SELECT id FROM jobs").fetchall()]
        assert states.count("Waiting") == pending
        assert states.count("Running") <= running
        worker = bench.pilot()
        for offer in worker.take(20, processors=20):
            worker.confirm(offer)
    states = [bench.state(job) for (job,) in bench.connection.execute("SELECT id FROM jobs").fetchall()]
    assert states.count("Running") == running
    bench.end()
