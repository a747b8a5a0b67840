"""The waiting jobs are counted part by part after a start, while everything else goes on."""

from __future__ import annotations

import secrets
from random import Random

import pytest

from pilotage.services.pool import index_loading as module
from pilotage.services.pool.index_loading import load_slice, open_pool
from pilotage.services.pool.state import Pool
from pilotage.store.writer.transaction import Transaction
from tests.unit.services.bench import Bench


def started_again(bench: Bench) -> Pool:
    """A pool of the same store, nothing counted yet."""

    def begin(tx: Transaction) -> Pool:
        old = bench.pool
        return open_pool(
            tx, old.policy, version=old.server.policy_version, incarnation=old.server.incarnation, rng=Random(1),
            secrets=secrets, home_owner=old.server.home_owner, load=False,
        )  # fmt: skip

    return bench.do(begin)


@pytest.mark.parametrize("slice_", [1, 7, 1000])
def test_jobs_are_counted_once_while_other_work_goes_on(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, slice_: int
) -> None:
    monkeypatch.setattr(module, "SLICE", slice_)
    first = [job for _ in range(4) for job in bench.submit(count=6)]
    pilot = bench.pilot()
    bench.pool = started_again(bench)
    rng, killed, done = Random(slice_), 0, False
    while not done:
        done = bench.do(lambda tx: load_slice(bench.pool, tx))
        match rng.randrange(4):
            case 0:
                bench.submit(count=3)
            case 1 if killed < len(first):
                bench.act("kill", first[-1 - killed])
                killed += 2
            case 2:
                pilot.take(count=2)
            case _:
                with pytest.raises(ZeroDivisionError):
                    bench.do(lambda tx: touch_and_fail(bench.pool, tx))
    bench.check()
    assert sum(entry.waiting for entry in bench.pool.queues.index.entries.values()) > 0


def touch_and_fail(pool: Pool, tx: Transaction) -> None:
    for queue in list(pool.queues.index.entries):
        pool.queues.touch(tx, queue)
        pool.queues.index.reset_queue(queue, {})
    raise ZeroDivisionError
