"""One user's request of any size keeps nobody's request waiting."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from pilotage.core.requests.states import RequestState
from pilotage.core.splitting.mask import Mask
from pilotage.server.duties import intake
from pilotage.server.duties.intake import IntakeDuty
from tests.unit.server.duty_pool import Pool
from tests.unit.services.bench import Bench
from tests.unit.services.workqueue.queue_bench import EVENTS, POLICY, QueueBench

AHEAD = 40
MOST = 5000


@pytest.fixture
def pool(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Pool]:
    limits = f"elements_ahead = {AHEAD}\nmax_elements_per_request = {MOST}\nintake_slice = 5\n"
    bench = Bench(tmp_path, POLICY + limits)
    yield Pool(QueueBench(bench), monkeypatch)
    bench.end()


def generator(queue: QueueBench, elements: int) -> int:
    """A request that generates events for as many elements of 1,000 jobs with 10 events each."""
    return queue.request(queue.step(splitting=EVENTS, events=elements * 10_000, start_policy="MonteCarlo"))


def take(queue: QueueBench, elements: int) -> None:
    """Agents take the oldest elements."""
    queue.run(
        "UPDATE elements SET state = 'Negotiating' WHERE id IN"
        " (SELECT id FROM elements WHERE state = 'Available' ORDER BY id LIMIT ?)",
        elements,
    )


def test_each_request_gets_one_slice_in_turn(pool: Pool) -> None:
    queue = pool.queue
    data = queue.dataset("large")
    for number in range(60):
        queue.block(data, f"b{number}", 1)
    large = queue.request(inputs=[data], priority=90_000)
    small = [generator(queue, 3) for _ in range(3)]
    slices = pool.refuse(intake, "take_slice", lambda *_: False)
    asyncio.run(IntakeDuty(pool.context).cycle())
    taken = [call[2] for call in slices]
    before = taken[: max(taken.index(request) for request in small)]
    assert Counter(before)[large] == 1
    assert len(queue.elements_of(large)) == 60
    assert Counter(taken)[large] >= 12
    assert {len(queue.elements_of(request)) for request in small} == {3}


def test_ranges_of_events_are_made_as_agents_take_them(pool: Pool) -> None:
    queue = pool.queue
    request = generator(queue, MOST)
    duty = IntakeDuty(pool.context)
    asyncio.run(duty.cycle())
    assert len(queue.elements_of(request)) == AHEAD
    assert queue.request_row(request).state is RequestState.ACQUIRED
    for _ in range(8):
        take(queue, AHEAD // 4)
        asyncio.run(duty.cycle())
        [(waiting,)] = queue.sql("SELECT count(*) FROM elements WHERE state = 'Available'")
        assert AHEAD // 4 <= waiting <= AHEAD
    first = [Mask.from_json(json.loads(row.mask)).first_event for row in queue.elements_of(request)]
    assert len(first) > 8 * (AHEAD // 4)
    assert first == [1 + number * 10_000 for number in range(len(first))]


def test_all_events_of_a_small_request_get_an_element_and_its_step_is_closed(pool: Pool) -> None:
    queue = pool.queue
    request = generator(queue, AHEAD + 7)
    duty = IntakeDuty(pool.context)
    for _ in range(4):
        asyncio.run(duty.cycle())
        take(queue, AHEAD)
    rows = queue.elements_of(request)
    assert sum(row.events for row in rows) == (AHEAD + 7) * 10_000
    assert queue.sql("SELECT closed FROM request_steps WHERE request_id = ?", request) == [(1,)]


def test_a_request_of_too_many_elements_fails_at_once_with_the_limit(pool: Pool) -> None:
    queue = pool.queue
    request = generator(queue, 10**12)
    asyncio.run(IntakeDuty(pool.context).cycle())
    row = queue.request_row(request)
    assert row.state is RequestState.FAILED
    assert "would make 1,000,000,000,000 elements; the policy allows 5,000" in row.reason
    assert queue.elements_of(request) == []


def test_a_data_set_with_too_many_blocks_is_refused_and_a_growing_one_waits_for_the_policy(
    pool: Pool,
) -> None:
    queue = pool.queue
    data = queue.dataset("data", is_open=True)
    queue.block(data, "b0", 1)
    request = queue.request(inputs=[data], open_until=queue.now + 1e6)
    duty = IntakeDuty(pool.context)
    asyncio.run(duty.cycle())
    queue.run("UPDATE requests SET reason = ''")
    queue.work_queue.element_counts[request] = MOST
    queue.block(data, "b1", 1)
    asyncio.run(duty.cycle())
    row = queue.request_row(request)
    assert row.state is RequestState.ACQUIRED
    assert "the policy allows 5,000" in row.reason
    queue.work_queue.element_counts.clear()
    asyncio.run(duty.cycle())
    assert len(queue.elements_of(request)) == 2
