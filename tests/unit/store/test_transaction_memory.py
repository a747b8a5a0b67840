"""What a transaction changes in memory is as it was before when it is not committed."""

from __future__ import annotations

import copy
from collections import OrderedDict
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pilotage.store.writer.transaction import Transaction


class Memory:
    def __init__(self) -> None:
        self.plain = 1
        self.mapping: dict[int, int] = {1: 10, 2: 20}
        self.ordered: OrderedDict[int, int] = OrderedDict({3: 30})
        self.members = {1, 5}

    def all(self) -> dict[str, Any]:
        return copy.deepcopy(vars(self))


keys, values = st.integers(0, 5), st.integers(0, 99)
changes = st.one_of(
    st.tuples(st.just("set"), st.sampled_from(["plain"]), values),
    st.tuples(st.just("replace"), st.just("mapping"), st.dictionaries(keys, values, max_size=3)),
    st.tuples(st.just("put"), keys, values),
    st.tuples(st.just("put all"), keys, values),
    st.tuples(st.just("put ordered"), keys, values),
    st.tuples(st.just("delete"), keys, values),
    st.tuples(st.just("add"), keys, values),
    st.tuples(st.just("discard"), keys, values),
)


def change(tx: Transaction, memory: Memory, what: str, key: Any, value: Any) -> None:
    if what in ("set", "replace"):
        tx.set(memory, key, value)
    elif what == "put":
        tx.put(memory.mapping, key, value)
    elif what == "put all":
        tx.put_all(memory.mapping, range(key), value)
    elif what == "put ordered":
        tx.put(memory.ordered, key, value)
    elif what == "delete":
        tx.delete(memory.mapping, key)
    elif what == "add":
        tx.add(memory.members, key)
    else:
        tx.discard(memory.members, key)


@given(st.lists(changes, max_size=12))
def test_any_changes_are_undone_and_can_be_made_again(made: list[tuple[str, Any, Any]]) -> None:
    memory = Memory()
    before = memory.all()
    tx = Transaction(None)  # type: ignore[arg-type]
    for one in made:
        change(tx, memory, *one)
    after = memory.all()
    tx.undo_changes()
    assert memory.all() == before
    replay = Transaction(None)  # type: ignore[arg-type]
    for one in made:
        change(replay, memory, *one)
    assert memory.all() == after


def test_each_change_does_what_it_says() -> None:
    memory, tx = Memory(), Transaction(None)  # type: ignore[arg-type]
    tx.set(memory, "plain", 2)
    tx.put(memory.mapping, 1, 11)
    tx.put(memory.mapping, 7, 70)
    tx.put_all(memory.mapping, (8, 9, 8), 80)
    tx.delete(memory.mapping, 2)
    tx.delete(memory.mapping, 99)
    tx.add(memory.members, 6)
    tx.discard(memory.members, 1)
    tx.discard(memory.members, 99)
    assert (memory.plain, memory.mapping, memory.members) == (2, {1: 11, 7: 70, 8: 80, 9: 80}, {5, 6})


def test_an_absent_attribute_cannot_be_set() -> None:
    with pytest.raises(AttributeError):
        Transaction(None).set(Memory(), "plane", 2)  # type: ignore[arg-type]


def test_undo_runs_from_the_newest_change_to_the_oldest() -> None:
    seen: list[str] = []
    memory, tx = Memory(), Transaction(None)  # type: ignore[arg-type]
    tx.on_rollback(lambda: seen.append(f"first {memory.plain}"))
    tx.set(memory, "plain", 2)
    tx.on_rollback(lambda: seen.append(f"last {memory.plain}"))
    tx.undo_changes()
    assert seen == ["last 2", "first 1"]


def test_an_undo_that_changes_memory_by_the_transaction_is_carried_out_once() -> None:
    memory, tx = Memory(), Transaction(None)  # type: ignore[arg-type]
    done: list[int] = []

    def undo() -> None:
        done.append(len(done))
        assert len(done) < 5
        tx.set(memory, "plain", 7)

    tx.on_rollback(undo)
    tx.undo_changes()
    tx.undo_changes()
    assert (done, memory.plain) == ([0], 7)


def test_a_failed_undo_is_repeated_before_the_earlier_undos() -> None:
    tx = Transaction(None)  # type: ignore[arg-type]
    done: list[str] = []

    def fails_once() -> None:
        done.append("tried")
        if len(done) == 1:
            raise ConnectionError

    tx.on_rollback(lambda: done.append("first"))
    tx.on_rollback(fails_once)
    with pytest.raises(ConnectionError):
        tx.undo_changes()
    tx.undo_changes()
    assert done == ["tried", "tried", "first"]
