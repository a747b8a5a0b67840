from __future__ import annotations

from collections.abc import Callable

import pytest

from pilotage.core.ids import JobId, PilotId, QueueId
from pilotage.services.pool.state import Pool
from tests.unit.services.bench import Bench
from tests.writer_guard import VIOLATION

CHANGES: dict[str, Callable[[Pool], object]] = {
    "a field": lambda pool: setattr(pool, "rng", pool.rng),
    "a dictionary": lambda pool: pool.pilots.last_seen.__setitem__(PilotId(1), 1.0),
    "a set": lambda pool: pool.pilots.stalled.add(PilotId(1)),
    "a field of the server": lambda pool: setattr(pool.server, "draining", True),
    "a field of the shares": lambda pool: setattr(pool.shares, "corrected_at", None),
    "a field of the queues": lambda pool: setattr(pool.queues, "loading", None),
    "the identities": lambda pool: pool.queues.identities.clear(),
    "the cache of submissions": lambda pool: pool.jobs.submissions.facts.clear(),
    "a cache": lambda pool: pool.pilots.rows.clear(),
    "the use of a cache": lambda pool: pool.pilots.rows.use(next(iter(pool.pilots.rows))),
    "the index": lambda pool: pool.queues.index.add_jobs(QueueId(1), 1, JobId(1), 0),
}


@pytest.mark.parametrize("name", CHANGES)
def test_a_change_outside_of_a_request_fails(bench: Bench, name: str) -> None:
    bench.submit()
    bench.pilot().take()
    with pytest.raises(AssertionError, match=VIOLATION):
        CHANGES[name](bench.pool)


def test_a_request_and_its_rollback_may(bench: Bench) -> None:
    def failing(tx: object) -> None:
        tx.set(bench.pool.server, "draining", True)  # type: ignore[attr-defined]
        raise RuntimeError("taken back")

    with pytest.raises(RuntimeError):
        bench.do(failing)
    assert not bench.pool.server.draining
