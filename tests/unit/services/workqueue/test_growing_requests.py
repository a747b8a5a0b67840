"""Steps that take blocks as they are closed: open requests, later steps, merges, whole data sets, resubmissions."""

from __future__ import annotations

import json

import pytest

from pilotage.core.datasets.facts import ELSEWHERE
from pilotage.core.requests.specification import StepSplitting
from pilotage.core.requests.states import RequestState
from pilotage.core.splitting.mask import FileRange, Mask
from pilotage.store.tables import location_sets
from tests.unit.services.workqueue.queue_bench import QueueBench


def closed_steps(queue: QueueBench, request: int) -> list[int]:
    rows = queue.sql("SELECT closed FROM request_steps WHERE request_id = ? ORDER BY position", request)
    return [row[0] for row in rows]


def test_an_open_request_grows_as_blocks_are_closed(queue: QueueBench) -> None:
    data = queue.dataset("data", is_open=True)
    queue.block(data, "first")
    late = queue.block(data, "late", is_open=True)
    request = queue.request(inputs=[data], open_until=queue.now + 100)
    queue.intake(request)
    assert (len(queue.elements_of(request)), closed_steps(queue, request)) == (1, [0])
    agent = queue.agent()
    assert len(agent.sync().elements) == 1
    queue.run("UPDATE blocks SET open = 0, closed_number = 9 WHERE id = ?", late)
    queue.intake(request)
    assert len(agent.sync().elements) == 1
    queue.bench.now += 101
    queue.intake(request)
    assert closed_steps(queue, request) == [1]
    queue.block(data, "too late")
    queue.intake(request)
    assert len(queue.elements_of(request)) == 2
    agent.split()
    queue.check_every_event_once(request)


def test_an_open_request_without_blocks_waits_for_them(queue: QueueBench) -> None:
    data = queue.dataset("later", is_open=True)
    request = queue.request(inputs=[data], open_until=queue.now + 100)
    queue.intake(request)
    row = queue.request_row(request)
    assert (row.state, row.reason) == (RequestState.ASSIGNED, "waits for blocks of later")
    queue.block(data, "first")
    queue.intake(request)
    assert queue.request_row(request).state is RequestState.ACQUIRED


def test_an_open_request_without_blocks_fails_at_its_end(queue: QueueBench) -> None:
    data = queue.dataset("never", is_open=True)
    request = queue.request(inputs=[data], open_until=queue.now + 100)
    queue.intake(request)
    queue.bench.now += 101
    queue.intake(request)
    row = queue.request_row(request)
    assert (row.state, row.reason) == (
        RequestState.FAILED,
        "there is no work: its input has no closed block",
    )


def test_a_request_with_a_merge_fails_if_its_closed_input_is_empty(queue: QueueBench) -> None:
    """Its merge would wait for outputs of jobs that nobody will make."""
    data = queue.dataset("empty")
    request = queue.request(queue.merged_step(), inputs=[data])
    queue.intake(request)
    row = queue.request_row(request)
    assert (row.state, row.reason) == (
        RequestState.FAILED,
        "there is no work: its input has no closed block",
    )


def test_a_request_whose_lists_exclude_all_blocks_does_not_tell_of_open_ones(queue: QueueBench) -> None:
    """The first slices took the blocks; the last one knows only that there are some."""
    data = queue.dataset("data")
    for number in range(3):
        queue.block(data, f"b{number}")
    request = queue.request(queue.step(banned_blocks=("b0", "b1", "b2")), inputs=[data])
    queue.intake(request, limit=1)
    assert queue.request_row(request).reason == (
        "there is no work: each block of its input is empty, or its lists of blocks and runs exclude it"
    )


def test_a_merge_step_takes_the_blocks_of_the_step_before(queue: QueueBench) -> None:
    data = queue.dataset("data")
    queue.block(data, "b")
    request = queue.request(queue.merged_step(), inputs=[data])
    queue.intake(request)
    assert closed_steps(queue, request) == [1, 0]
    assert queue.request_row(request).state is RequestState.ACQUIRED
    [(unmerged,)] = queue.sql("SELECT output_dataset FROM request_steps WHERE position = 0")
    queue.block(unmerged, "outputs", 3, sites=["B"])
    queue.intake(request)
    agent = queue.agent()
    answer = agent.sync()
    assert [(element.step, element.type) for element in answer.elements] == [
        ("process", "Processing"),
        ("process.merge", "Merge"),
    ]
    agent.split()
    queue.check_every_event_once(request)
    # The step ends only when the data set is closed, whatever the time.
    assert closed_steps(queue, request) == [1, 0]
    queue.run("UPDATE datasets SET open = 0 WHERE id = ?", unmerged)
    queue.intake(request)
    assert closed_steps(queue, request) == [1, 1]


def test_a_whole_data_set_is_one_element_where_all_blocks_are(queue: QueueBench) -> None:
    data = queue.dataset("data", is_open=True)
    queue.block(data, "b1", sites=["A", "B"])
    queue.block(data, "b2", sites=["B", "C"])
    request = queue.request(queue.step(start_policy="Dataset"), inputs=[data])
    queue.intake(request)
    assert queue.request_row(request).reason == "waits for blocks of data"
    queue.run("UPDATE datasets SET open = 0")
    queue.intake(request)
    [row] = queue.elements_of(request)
    sites = queue.bench.do(lambda tx: location_sets.sites_of(tx.connection, [row.location_set]))
    assert sites[row.location_set] == frozenset("B")
    agent = queue.agent()
    assert agent.sync(slots={"A": 99}).elements == []
    assert len(agent.sync().elements) == 1
    agent.split()
    queue.check_every_event_once(request)


def test_a_whole_data_set_with_an_unknown_block_waits_unknown(queue: QueueBench) -> None:
    data = queue.dataset("data")
    queue.block(data, "b1", sites=["A"])
    queue.block(data, "b2", sites=None)
    request = queue.request(queue.step(start_policy="Dataset"), inputs=[data])
    queue.intake(request)
    assert queue.elements_of(request)[0].location_set == 0
    assert queue.agent().sync().elements == []


def test_only_data_with_an_address_is_read_from_elsewhere(queue: QueueBench) -> None:
    data = queue.dataset("data")
    queue.block(data, "b", sites=None)
    queue.block(data, "c", sites=["gone"])
    plain = queue.request(inputs=[data])
    queue.intake(plain)
    assert queue.agent().sync().elements == []
    trusting = queue.request(inputs=[data], trust_input=True)
    queue.intake(trusting)
    agent = queue.agent("two")
    # Nobody could open the files: the one block is at an unknown place, the other has a plain path elsewhere.
    assert agent.sync().elements == []
    readable = queue.dataset("readable")
    queue.block(readable, "d", sites=["gone", ELSEWHERE])
    refused, taken = queue.request(inputs=[readable]), queue.request(inputs=[readable], trust_input=True)
    for request in (refused, taken):
        queue.intake(request)
    assert [element.request for element in agent.sync().elements] == [taken]


def test_lists_of_blocks_and_runs_restrict_the_elements(queue: QueueBench) -> None:
    data = queue.dataset("data")
    queue.block(data, "b1", 2, lumis=[[1, 1, 10]])
    queue.block(data, "b2", 2, lumis=[[2, 1, 10], [3, 1, 4]])
    queue.block(data, "b3", 2, lumis=[[3, 1, 5]])
    steps = {
        ("b1", "b3"): queue.step(blocks=("b1", "b3")),
        ("b2", "b3"): queue.step(banned_blocks=("b1",)),
        ("b2", "b3 "): queue.step(runs=(3,)),
    }
    for names, step in steps.items():
        request = queue.request(step, inputs=[data])
        queue.intake(request)
        ids = [block for row in queue.elements_of(request) for block in row.block_ids]
        found = [queue.sql("SELECT name FROM blocks WHERE id = ?", number)[0][0] for number in ids]
        assert found == [name.strip() for name in names]


def test_a_total_of_files_counts_over_all_elements_of_a_step(queue: QueueBench) -> None:
    """Two inputs, blocks of four files, nine files in all: the third element has one file, the others are not made."""
    first, second = queue.dataset("first"), queue.dataset("second")
    for name in ("b1", "b2"):
        queue.block(first, name)
    queue.block(second, "b3")
    step = queue.step(
        splitting=StepSplitting("FileBased", (("files_per_job", 2), ("total_files", 9))),
        input=("first", "second"),
    )
    request = queue.request(step, inputs=[first, second])
    queue.intake(request, limit=1)
    assert [(row.files, row.events) for row in queue.elements_of(request)] == [(4, 400), (4, 400), (1, 100)]
    assert closed_steps(queue, request) == [1, 1]
    agent = queue.agent()
    agent.sync()
    agent.split()
    assert sorted(len(mask.ranges) for mask in queue.masks(request)) == [1, 2, 2, 2, 2]
    queue.intake(request)
    assert len(queue.elements_of(request)) == 3


def test_an_open_request_is_closed_when_its_total_is_reached(queue: QueueBench) -> None:
    data = queue.dataset("data", is_open=True)
    queue.block(data, "b1", lumis=[(1, 1, 10)])
    splitting = StepSplitting("EventAwareLumiBased", (("events_per_job", 100), ("total_events", 450)))
    request = queue.request(queue.step(splitting=splitting), inputs=[data], open_until=queue.now + 1000)
    queue.intake(request)
    assert [row.events for row in queue.elements_of(request)] == [400]
    assert closed_steps(queue, request) == [0]
    queue.block(data, "b2", lumis=[(1, 11, 20)])
    queue.block(data, "b3")
    queue.intake(request)
    assert [row.events for row in queue.elements_of(request)] == [400, 50]
    assert closed_steps(queue, request) == [1]
    agent = queue.agent()
    agent.sync()
    agent.split()
    assert not agent.held
    assert sum(mask.events for mask in queue.masks(request)) == 450
    assert {row.state for row in queue.elements_of(request)} == {"Running"}


def json_of(text: str) -> dict[str, object]:
    return dict(json.loads(text))


def pieces(masks: list[Mask]) -> list[tuple[int, int, int]]:
    """(file, first event, events) of all parts; file 0: to be generated."""
    found: list[tuple[int, int, int]] = []
    for mask in masks:
        parts = mask.ranges or (FileRange(0, mask.first_event, mask.events),)
        found += [(part.file, part.first, part.events) for part in parts]
    return found


@pytest.mark.slow
def test_two_hundred_requests_of_a_thousand_blocks(queue: QueueBench) -> None:
    """All become elements in slices, and three agents get each element once."""
    data = queue.dataset("data")
    for number in range(4):
        queue.block(data, f"b{number}", 1, sites=["A", "B"])
    rows = [(data, f"more{number}", queue.now, 10 + number) for number in range(996)]
    queue.bench.do(
        lambda tx: tx.connection.executemany(
            "INSERT INTO blocks (dataset_id, name, created, open, closed_number, files, events, size, location_set)"
            " VALUES (?, ?, ?, 0, ?, 1, 1, 1, 1)",
            rows,
        )
    )
    requests = [queue.request(inputs=[data]) for _ in range(200)]
    for request in requests:
        assert queue.intake(request) >= 2
    assert queue.sql("SELECT count(*), count(DISTINCT digest) FROM elements") == [(200_000, 200_000)]
    agents = [queue.agent(name) for name in ("one", "two", "three")]
    taken: list[int] = []
    for turn in range(12):
        agent = agents[turn % 3]
        taken += [element.id for element in agent.sync().elements]
    assert len(taken) == len(set(taken)) > 0
    assert taken[:5] == [1, 2, 3, 4, 5]
