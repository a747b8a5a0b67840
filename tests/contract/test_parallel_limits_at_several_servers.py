"""The limit of a submission at two servers: jobs end at both at once, and no place is given twice or lost."""

from __future__ import annotations

import pytest

from pilotage.store.tables import jobs
from tests.contract.one_of_several import One
from tests.contract.test_dependants_at_several_servers import at_once, end, pair, settle, submit

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
