from __future__ import annotations

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from pilotage.core.queues.fit import Offer
from pilotage.core.queues.identity import QueueIdentity
from pilotage.services.matching import requirements
from pilotage.services.matching.requirements import PARSED_TEXTS, requirements_for
from pilotage.services.pool.lru_cache import LruCache
from pilotage.store.writer.transaction import Transaction
from tests.unit.services.bench import NODE, Bench
from tests.writer_guard import as_writer

LIMIT = 3


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 6))))
@as_writer()
def test_the_least_recently_used_keys_go(steps: Sequence[tuple[bool, int]]) -> None:
    cache: LruCache[int, str] = LruCache(LIMIT)
    recent: list[int] = []
    for assign, key in steps:
        if assign:
            cache[key] = str(key)
        elif (value := cache.use(key)) is not None:
            assert value == str(key)
        else:
            continue
        recent = [*(other for other in recent if other != key), key][-LIMIT:]
        assert list(cache) == recent


@as_writer()
def test_a_look_changes_nothing() -> None:
    cache: LruCache[int, str] = LruCache(2)
    cache[1], cache[2] = "a", "b"
    assert cache.get(1) == "a"
    cache[3] = "c"
    assert list(cache) == [2, 3]


@as_writer()
def test_a_transaction_that_fails_leaves_a_full_cache_bounded(bench: Bench) -> None:
    cache: LruCache[int, str] = LruCache(2)
    cache[1], cache[2] = "a", "b"
    tx = Transaction(bench.connection)
    tx.put(cache, 3, "c")
    tx.undo_changes()
    assert list(cache) == [2]


@as_writer()
def test_parsed_requirements_are_bounded(bench: Bench) -> None:
    """Each submission may have a text of its own, for years."""
    holds = requirements_for(bench.pool, Offer(site="here", ce="local", cpu_time=1.0), NODE, 0.0)
    for number in range(PARSED_TEXTS + 10):
        assert holds(QueueIdentity("alice", "physics", requirements=f"{number} >= 0"))
    assert requirements.stored_expression.cache_info().currsize == PARSED_TEXTS
