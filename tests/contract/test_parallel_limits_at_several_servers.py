"""The limit of a submission at two servers: jobs end at both at once, and no place is given twice or lost."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import count
from typing import Any, cast

import pytest

from pilotage.services.jobs import dependants, parallel
from pilotage.services.jobs.actions import act
from pilotage.store.tables import chains, jobs, parallel_limits
from pilotage.store.writer.transaction import Transaction
from tests.contract.one_of_several import One
from tests.contract.test_dependants_at_several_servers import at_once, end, pair, settle, state_of, submit
from tests.unit.services.workqueue.race import Race

pytestmark = pytest.mark.slow

__all__ = ["pair"]


def test_no_place_is_given_twice_or_lost(pair: tuple[One, One]) -> None:
    a, b = pair
    row = submit(a, 60, parallel=6)
    ids = range(row.first_job, row.first_job + 60)
    settle(a)

    def states(one: One) -> dict[int, str]:
        rows = one.writer.call(lambda tx: jobs.by_ids(tx.connection, list(ids), for_update=False))
        return {job: row.state for job, row in rows.items()}

    def work(one: One, part: int) -> None:
        for _ in range(200):
            found = states(one)
            waiting = [job for job in ids if found[job] == "Waiting"]
            assert len(waiting) <= 6
            mine = [job for job in waiting if job % 2 == part]
            if not any(found[job] in ("Waiting", "Blocked") for job in ids if job % 2 == part):
                return
            for job in mine:
                end(one, job)
            settle(one)
        raise AssertionError("places were lost")

    at_once(lambda: work(a, 0), lambda: work(b, 1))
    settle(a)
    assert {states(a)[job] for job in ids} == {"Done"}


@pytest.fixture
def race(pair: tuple[One, One]) -> Iterator[Race]:
    made = Race(cast("Any", pair[0]), cast("Any", pair[1]))
    yield made
    made.end()


def acting(one: One, verb: str, *ids: int) -> Callable[[Transaction], object]:
    return lambda tx: act(one.pool, tx, verb, ids, actor="user:ada", reason="", now=3.0, dry_run=False)


def moving(one: One, submission: int) -> Callable[[Transaction], object]:
    return lambda tx: parallel.move_jobs(one.pool, tx, [submission], 4.0)


def test_jobs_are_locked_before_their_limit(race: Race, pair: tuple[One, One]) -> None:
    """A person releases a held job and looks at a blocked one, while the other server gives the blocked one a place."""
    a, b = pair
    row = submit(a, 3, parallel=2)
    first, second, last = range(row.first_job, row.first_job + 3)
    settle(a)
    a.do(acting(a, "hold", first))
    end(a, second)
    changes = a.do(lambda tx: chains.next_changes(tx.connection, 10))
    a.do(lambda tx: dependants.decide_changes(tx, changes))

    def release(tx: Transaction) -> None:
        jobs.by_ids(tx.connection, [first, last])
        race.pause()
        acting(a, "release", first)(tx)

    for answer in race.run(release, moving(b, row.id)):
        assert not isinstance(answer, BaseException), answer
    assert [one.writer.races for one in pair] == [0, 0]
    settle(a)
    assert [state_of(a, job) for job in (first, last)] == ["Waiting", "Waiting"]


@pytest.mark.parametrize("running", [1, 2])
def test_a_job_that_is_released_at_any_moment_of_the_moves_gets_its_place(
    race: Race, pair: tuple[One, One], running: int
) -> None:
    a, b = pair
    for trip in count(1):
        row = submit(a, 2, parallel=2)
        first, second = row.first_job, row.first_job + 1
        settle(a)
        a.do(acting(a, "hold", first, second))
        a.do(acting(a, "release", first))
        a.do(lambda tx: parallel.set_limit(a.pool, tx, row.id, running))  # noqa: B023
        reached = race.run_before_trip(trip, moving(b, row.id), acting(a, "release", second))
        settle(a)
        assert [state_of(a, job) for job in (first, second)].count("Waiting") == running, trip
        assert a.do(lambda tx: parallel_limits.unsettled(tx.connection, 1)) == []
        if not reached:
            assert trip > 4
            break
