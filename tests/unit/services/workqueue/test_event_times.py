"""Lumis that take too long are found by the measured time per event, unless the request gives one."""

from __future__ import annotations

import pytest

from pilotage.core.requests.specification import StepSplitting
from pilotage.store.tables import event_times
from tests.unit.services.workqueue.queue_bench import QueueBench

PARAMETERS = (("events_per_job", 100), ("max_lumi_time", 1000.0))


def done_job(queue: QueueBench, job: int, wall: float, *, outcome: str = "applied") -> None:
    """End an element job with this pool job; the node had 2 cores of half a reference core each."""
    queue.run("UPDATE element_jobs SET state = 'done', job_id = ? WHERE id = ?", job, job)
    queue.run(
        "INSERT INTO attempts (job_id, epoch, attempt, pilot_id, started, ended, outcome, wall, processors, cpu_power)"
        " VALUES (?, 1, 1, 1, 0.0, 1.0, ?, ?, 2, 0.5)",
        *(job, outcome, wall),
    )


@pytest.mark.parametrize("given", [False, True])
def test_the_time_of_done_jobs_is_used_where_none_is_given(queue: QueueBench, given: bool) -> None:
    data = queue.dataset("data")
    for number in range(3):
        queue.block(data, f"b{number}", 1, events=100, lumis=[(1, number * 2 + 1, number * 2 + 2)])
    parameters = (*PARAMETERS, ("time_per_event", 12.0)) if given else PARAMETERS
    request = queue.request(
        queue.step(splitting=StepSplitting("EventAwareLumiBased", parameters)), inputs=[data]
    )
    queue.intake(request)
    agent = queue.agent()
    [first] = agent.sync(1).elements
    # 50 events of a lumi take 600 s by the default.
    assert ("time_per_event" in first.splitting.parameters) is given
    agent.split()
    [(job,)] = queue.sql("SELECT id FROM element_jobs")
    done_job(queue, job, 3000.0, outcome="retried")
    [second] = agent.sync(1).elements
    assert second.splitting == first.splitting, "only the attempt that was accepted counts"
    queue.run("UPDATE attempts SET outcome = 'applied'")
    [third] = agent.sync(1).elements
    if given:
        assert third.splitting == first.splitting
        agent.split()
    else:
        assert third.splitting.parameters["time_per_event"] == 30.0
        [mask] = agent.masks_of(third)
        assert "more than the 0.3 h of max_lumi_time" in mask.refused


def test_a_resubmission_knows_the_times_of_the_request_that_it_resubmits(queue: QueueBench) -> None:
    """Also in the second generation, and until it has done jobs of its own."""
    data = queue.dataset("data")
    queue.block(data, "b", 1, events=100, lumis=[(1, 1, 2)])
    step = StepSplitting("EventAwareLumiBased", PARAMETERS)
    first, second, third, clone = (queue.request(queue.step(splitting=step), inputs=[data]) for _ in range(4))
    for later, earlier, root in ((second, first, first), (third, second, first), (clone, first, None)):
        queue.run("UPDATE requests SET origin_id = ?, root_id = ? WHERE id = ?", earlier, root, later)
    queue.intake(first)
    agent = queue.agent()
    agent.sync(1)
    agent.split()
    done_job(queue, 1, 3000.0)

    def measured(request: int) -> float | None:
        return event_times.time_per_event(queue.bench.connection, request, 0, 100)

    assert [measured(request) for request in (first, second, third, clone)] == [30.0, 30.0, 30.0, None]


def test_other_algorithms_are_offered_as_they_are(queue: QueueBench) -> None:
    data = queue.dataset("data")
    for number in range(2):
        queue.block(data, f"b{number}", 1)
    request = queue.request(inputs=[data])
    queue.intake(request)
    agent = queue.agent()
    agent.sync(1)
    agent.split()
    done_job(queue, 1, 50.0)
    [element] = agent.sync(1).elements
    assert dict(element.splitting.parameters) == {"files_per_job": 2}
