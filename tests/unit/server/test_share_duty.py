"""The duty of shares, while the buckets that it stores get invalid."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from pilotage.server.duties.shares import TRIES, ShareDuty
from pilotage.services.shares import corrections
from pilotage.store.tables import usage
from pilotage.store.writer.transaction import Transaction
from tests.unit.server.duty_pool import Pool
from tests.unit.services.bench import Bench
from tests.unit.services.test_shares import CORRECTED, HOUR
from tests.unit.services.workqueue.queue_bench import QueueBench


@pytest.fixture
def pool(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Pool]:
    bench = Bench(tmp_path, CORRECTED)
    bench.submit(1)
    bench.pilot().hold()
    bench.now += 30
    bench.sign_of_life()
    yield Pool(QueueBench(bench), monkeypatch)
    bench.close()


def cycle(pool: Pool, resets: int) -> corrections.UseBook:
    """A cycle of the duty, in which all buckets get so many times invalid before they are stored."""
    book = corrections.UseBook(HOUR)
    pool.context.duties.book = book
    acall, left = pool.context.writer.acall, iter(range(resets))

    async def reset_before(request: Callable[[Transaction], Any]) -> Any:
        if next(left, None) is not None:
            pool.bench.do(lambda tx: usage.reset(tx.connection))
        return await acall(request)

    with pool.monkeypatch.context() as patch:
        patch.setattr(pool.context.writer, "acall", reset_before)
        asyncio.run(ShareDuty(pool.context).cycle())
    return book


@pytest.mark.parametrize("resets", range(TRIES))
def test_use_is_charged_again_if_all_buckets_got_invalid(pool: Pool, resets: int) -> None:
    book = cycle(pool, resets)
    assert usage.as_of(pool.bench.connection) == book.as_of == pool.bench.now
    assert pool.bench.pool.shares.corrected_at == pool.bench.now


def test_corrections_do_not_wait_until_no_pilot_comes_back(pool: Pool) -> None:
    cycle(pool, TRIES)
    assert usage.as_of(pool.bench.connection) is None
    assert pool.bench.pool.shares.corrected_at == pool.bench.now
    cycle(pool, 0)
    assert usage.as_of(pool.bench.connection) == pool.bench.now
