"""Requests to the writer, and the undo log of a transaction for state in memory."""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Mapping, MutableMapping, MutableSet, Sequence
from typing import Any, Generic, TypeVar

from pilotage.store.engine.connection import Connection, lock_name

Key = TypeVar("Key")
Value = TypeVar("Value")
Result = TypeVar("Result")

_ABSENT: Any = object()


class Transaction:
    """One open transaction. Its connection is the writer's.

    A request changes memory only by `set`, `put`, `put_all`, `delete`, `add`, `discard`, or with `on_rollback`: if the
    transaction is not committed, memory is then as it was before, and the request can be carried out again.
    """

    __slots__ = ("_last", "_locked", "_touched", "_undo", "connection")

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self._undo: list[tuple[Any, ...]] = []
        """Functions with their arguments: tuples cost less than closures, and a match makes one for each change."""
        self._last: dict[str, Callable[[], object]] = {}
        self._touched: dict[str, dict[Any, Any]] = {}
        self._locked: set[str] = set()

    def lock(self, name: str) -> None:
        """Hold the lock of this name until the transaction ends; see `lock_name`.

        Call it before the first look at the facts that it stands for. A `LockingRequest` takes it in the right order.
        """
        if name not in self._locked:
            self._locked.add(name)
            lock_name(self.connection, name)

    def touch(self, kind: str, key: Hashable, value: Any, undo: Callable[[dict[Any, Any]], object]) -> None:
        """Record the last value of a key. On rollback `undo` is called once for all recorded keys of `kind`."""
        self.touched(kind, undo)[key] = value

    def touched(self, kind: str, undo: Callable[[dict[Any, Any]], object]) -> dict[Any, Any]:
        """The mutable mapping of recorded keys of a kind; `undo` as in `touch`."""
        touched = self._touched.get(kind)
        if touched is None:
            created = touched = self._touched[kind] = {}
            self.on_rollback(lambda: undo(created))
        return touched

    def set(self, target: object, name: str, value: object) -> None:
        """Assign an attribute; on rollback it gets its old value back."""
        before = getattr(target, name)
        self._undo.append((setattr, target, name, before))
        setattr(target, name, value)

    def put(self, mapping: MutableMapping[Key, Value], key: Key, value: Value) -> None:
        """Assign the value of a key; on rollback the key has its old value, or is absent again."""
        self._undo.append((_restore_key, mapping, key, mapping.get(key, _ABSENT)))
        mapping[key] = value

    def put_all(self, mapping: MutableMapping[Key, Value], keys: Collection[Key], value: Value) -> None:
        """Assign one value to several keys; on rollback each is as after `put`."""
        before = {key: mapping.get(key, _ABSENT) for key in keys}
        self._undo.append((_restore_keys, mapping, before))
        mapping.update(dict.fromkeys(before, value))

    def delete(self, mapping: MutableMapping[Key, Value], key: Key) -> None:
        """Remove a key if it is there; on rollback it is there again, as the last one of its mapping."""
        before = mapping.pop(key, _ABSENT)
        if before is not _ABSENT:
            self._undo.append((_restore_key, mapping, key, before))

    def add(self, members: MutableSet[Key], member: Key) -> None:
        """Add a member to a set; on rollback it is not there unless it was before."""
        if member not in members:
            members.add(member)
            self._undo.append((members.discard, member))

    def discard(self, members: MutableSet[Key], member: Key) -> None:
        """Remove a member from a set if it is there; on rollback it is there again."""
        if member in members:
            members.discard(member)
            self._undo.append((members.add, member))

    def on_rollback(self, undo: Callable[[], object]) -> None:
        """Register a callback for a rollback; callbacks run newest first, after the rows are restored."""
        self._undo.append((undo,))

    def before_commit(self, kind: str, last: Callable[[], object]) -> bool:
        """Run `last` within the transaction after all of its requests, once for each kind.

        True: it is the first of its kind.
        """
        return self._last.setdefault(kind, last) is last

    def finish(self) -> None:
        for last in self._last.values():
            last()

    def undo_changes(self) -> None:
        """Undo all changes in memory. A callback that raises is retried by the next call, before earlier callbacks."""
        while self._undo:
            last = len(self._undo) - 1
            undo, *arguments = self._undo[last]
            undo(*arguments)
            # Drop callbacks registered during an undo, which only restores state.
            del self._undo[last:]


def _restore_key(mapping: MutableMapping[Key, Any], key: Key, before: object) -> None:
    if before is _ABSENT:
        mapping.pop(key, None)
    else:
        mapping[key] = before


def _restore_keys(mapping: MutableMapping[Key, Any], before: Mapping[Key, object]) -> None:
    for key, value in before.items():
        _restore_key(mapping, key, value)


Request = Callable[[Transaction], Any]
Handler = Callable[[Transaction, Sequence[Any]], Sequence[Any]]
"""Processes several requests of one kind. Returns a result or an error for each; an error changed nothing."""


class BatchableRequest:
    """A request that is processed together with its neighbours of the same handler."""

    __slots__ = ("handler", "value", "weight")

    def __init__(self, handler: Handler, value: Any, weight: int = 1) -> None:
        """`weight`: the cost in units of a small request."""
        self.handler = handler
        self.value = value
        self.weight = weight

    def __call__(self, tx: Transaction) -> Any:
        [answer] = self.handler(tx, [self.value])
        return answer


class LockingRequest(Generic[Result]):
    """A request that begins with `Transaction.lock`.

    A group takes all of its locks first, in one order, and before any lock of a row. So two servers never wait for each
    other.
    """

    __slots__ = ("name", "request")

    def __init__(self, name: str, request: Callable[[Transaction], Result]) -> None:
        self.name = name
        self.request = request

    def __call__(self, tx: Transaction) -> Result:
        tx.lock(self.name)
        return self.request(tx)


def run_requests(transaction: Transaction, requests: Sequence[Request]) -> list[Any]:
    """Run a group of requests; returns their results in order."""
    for name in sorted({request.name for request in requests if isinstance(request, LockingRequest)}):
        transaction.lock(name)
    results: list[Any] = []
    place = 0
    while place < len(requests):
        request = requests[place]
        if not isinstance(request, BatchableRequest):
            results.append(request(transaction))
            place += 1
            continue
        alike = [request.value]
        place += 1
        while place < len(requests):
            following = requests[place]
            if not isinstance(following, BatchableRequest) or following.handler is not request.handler:
                break
            alike.append(following.value)
            place += 1
        results.extend(request.handler(transaction, alike))
    return results
