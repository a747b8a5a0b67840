"""Two servers on one PostgreSQL database accept resubmissions of one chain at the same time."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import pytest

from pilotage.core.errors import Conflict
from pilotage.services.requests import copies
from pilotage.services.requests.copies import Resubmitted
from pilotage.store.writer.transaction import Transaction
from tests.deadlines import PATIENCE
from tests.unit.services.bench import Bench
from tests.unit.services.test_requests import MANAGER
from tests.unit.services.test_resubmissions import FILES, ChainDesk
from tests.unit.services.workqueue.queue_bench import QueueBench
from tests.unit.services.workqueue.race import Race, Servers

pytestmark = pytest.mark.slow


def resubmission(bench: Bench, number: int, key: str = "") -> Callable[[Transaction], Resubmitted]:
    return lambda tx: copies.resubmit(bench.pool.policy, tx, number, MANAGER, key=key, now=bench.now)


def claimed(queue: QueueBench) -> list[str]:
    """The masks of all elements of resubmissions that have not ended."""
    sql = (
        "SELECT e.mask FROM elements e JOIN requests r ON r.id = e.request_id"
        " WHERE r.root_id IS NOT NULL AND r.state = 'assigned' ORDER BY e.mask"
    )
    return [row[0] for row in queue.sql(sql)]


def test_one_of_two_resubmissions_gets_the_parts(race: Race, servers: Servers) -> None:
    chain = ChainDesk(servers.first)
    row, _ = chain.failed_request(2, **FILES)
    first, second = race.run(
        resubmission(race.first, row.id, "one"), resubmission(race.second, row.id, "two")
    )
    assert first.parts == 2
    assert isinstance(second, Conflict)
    assert "each failed part" in second.message
    assert len(claimed(servers.first)) == 1


def test_the_same_key_at_both_servers_makes_one_request(race: Race, servers: Servers) -> None:
    chain = ChainDesk(servers.first)
    row, _ = chain.failed_request(2, **FILES)
    first, second = race.run(
        resubmission(race.first, row.id, "key"), resubmission(race.second, row.id, "key")
    )
    assert first == second


def test_a_request_and_its_resubmission_give_each_part_once(race: Race, servers: Servers) -> None:
    """Both still have the part that failed twice; the lock is that of the first request."""
    chain = ChainDesk(servers.first)
    row, _ = chain.failed_request(3, **FILES)
    child = chain.resubmit(row.id)
    jobs = chain.make_jobs(child.row.id)
    chain.end(child.row.id, jobs[:1], aborted=jobs[1:2])
    first, second = race.run(resubmission(race.first, child.row.id), resubmission(race.second, row.id))
    assert (first.parts, second.parts) == (1, 1)
    assert second.left_out == ((child.row.id, 1), (first.row.id, 1))
    assert len(set(claimed(servers.first))) == 2


def test_two_servers_give_each_part_to_one_of_many_resubmissions(servers: Servers) -> None:
    """Each part goes to one request, in any order of arrival."""
    chain = ChainDesk(servers.first)
    rows = [chain.failed_request(3, **FILES)[0] for _ in range(5)]
    answers: list[Future[Any]] = []
    with ThreadPoolExecutor(2) as threads:
        for bench in (servers.first.bench, servers.second.bench):
            answers.append(
                threads.submit(
                    lambda bench: [Race.answer(bench, resubmission(bench, row.id)) for row in rows], bench
                )
            )
    pairs = list(zip(*(future.result(PATIENCE) for future in answers), strict=True))
    for row, pair in zip(rows, pairs, strict=True):
        made = [answer for answer in pair if isinstance(answer, Resubmitted)]
        assert [answer.parts for answer in made] == [3]
        assert made[0].row.root == row.id
