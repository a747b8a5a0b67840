"""Fails each statement of a writer's transaction that rests on rows which another server may change meanwhile.

`active` watches the connections to PostgreSQL of this process, so production code pays nothing. The module
`pilotage.store.engine.decisions` says on which rows a function of the store may rest. SQLite has one writer.
"""

from __future__ import annotations

import contextlib
import functools
import re
import sys
import weakref
from collections.abc import Callable, Collection, Iterable, Iterator
from types import CodeType, FrameType
from typing import Any, NamedTuple

from pilotage.store.engine.decisions import GUARDS, MARKS, UNCHANGING, Mark
from pilotage.store.postgresql.connection import PostgresqlConnection
from tests.lock_order import LockOrder

WATCHED = ("/pilotage/store/tables/", "/pilotage/store/cluster/")
BELOW = ("/pilotage/store/engine/", "/pilotage/store/postgresql/", "/tests/decision_guard.py")
"""Frames between a connection and the function that has executed the statement."""

_INNER = re.compile(r"\([^()]*\)")
_TABLE = re.compile(r"\b(FROM|JOIN|UPDATE|INTO|USING)\s+(?:ONLY\s+)?([a-z_]+)")
_LOCK = re.compile(r"\bFOR (?:NO KEY UPDATE|UPDATE|KEY SHARE|SHARE)\b")

_held: weakref.WeakKeyDictionary[Any, dict[str, int]] = weakref.WeakKeyDictionary()
"""The tables with rows that a transaction has locked or written, with the strength of the locks; -1: only new rows."""
orders = LockOrder()
"""The orders of locks in all watched transactions of this process."""
_violations: list[str] = []
_active = False
_installed = False


class Statement(NamedTuple):
    verb: str
    table: str
    """Of the rows that it changes or locks; of a look the first one."""
    read: tuple[str, ...]
    """The tables that a look reads."""
    locks: bool


@functools.lru_cache(maxsize=4096)
def parsed(sql: str) -> Statement:
    """The parts of a statement that the guard looks at."""
    words = sql.split(None, 1)
    verb = words[0].upper() if words else ""
    tables = _tables(sql)
    if verb == "WITH":
        verb = next((v for v in ("UPDATE", "DELETE", "INSERT") if re.search(rf"\b{v}\b", sql)), "SELECT")
    outer = (*_tables(_without_inner(sql)), *tables)
    return Statement(verb, outer[0] if outer else "", tables, bool(_LOCK.search(sql)))


def _tables(sql: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys(name for _, name in _TABLE.findall(sql) if name in _known()))


def _without_inner(sql: str) -> str:
    """The statement without its subqueries: they lock nothing, since a lock is of the outer tables."""
    while (outer := _INNER.sub("", sql)) != sql:
        sql = outer
    return sql


@functools.cache
def _known() -> frozenset[str]:
    from pilotage.store.schema import metadata

    return frozenset(metadata.tables)


def check(connection: Any, sql: str) -> None:
    """Look at one statement before it is executed."""
    if not _active or connection._reads_only or not connection.in_transaction:
        return
    statement = parsed(sql)
    if not statement.table:
        return
    held = _held.setdefault(connection, {})
    functions, caller = _store_frames(sys._getframe(2))
    if functions and caller is not None:
        marks = [mark for code in functions if (mark := MARKS.get(code)) is not None]
        broken = problem(statement, held, marks)
        if broken:
            place = f"{functions[-1].co_filename.rpartition('/pilotage/')[2]}:{functions[-1].co_name}"
            _violations.append(f"{place} {broken}, called by {caller}: {' '.join(sql.split())[:150]}")
    orders.note(held, statement.verb, statement.table, sql, caller or "a test")
    if statement.locks or statement.verb != "SELECT":
        held.setdefault(statement.table, -1)


def problem(statement: Statement, held: Collection[str], marks: Iterable[Mark]) -> str:
    kinds = {mark.kind for mark in marks}
    if statement.verb == "SELECT":
        if statement.locks or kinds & {"decision", "hint", "overwrites"}:
            return ""
        loose = [table for table in statement.read if table not in UNCHANGING and not _is_held(table, held)]
        return f"looks at {', '.join(loose)}" if loose else ""
    if statement.verb in ("UPDATE", "DELETE"):
        if kinds & {"guarded", "overwrites"} or statement.locks or _is_held(statement.table, held):
            return ""
        return f"changes {statement.table}"
    return ""


def _is_held(table: str, held: Collection[str]) -> bool:
    return table in held or any(guard in held for guard in GUARDS.get(table, ()))


def _store_frames(frame: FrameType | None) -> tuple[list[CodeType], str | None]:
    """The store's functions that execute a statement, and the product's function that has called them."""
    functions: list[CodeType] = []
    while frame is not None:
        code, file = frame.f_code, frame.f_code.co_filename
        if any(part in file for part in WATCHED):
            functions.append(code)
        elif not any(part in file for part in BELOW):
            is_product = "/pilotage/" in file and "/tests/" not in file and "/store/admin/" not in file
            return functions, f"{file.rpartition('/pilotage/')[2]}:{code.co_name}" if is_product else None
        frame = frame.f_back
    return functions, None


@contextlib.contextmanager
def active() -> Iterator[None]:
    """Watch the transactions of one test."""
    global _active
    install()
    _violations.clear()
    _active = True
    try:
        yield
    finally:
        _active = False
    assert not _violations, "\n".join(dict.fromkeys(_violations))


def install() -> None:
    """Patch the class of PostgreSQL's connections, once per process."""
    global _installed
    if _installed:
        return
    _installed = True
    for name in ("execute", "execute_later", "executemany", "fetch_batches"):
        _watch(name, lambda given: given)
    for name in ("execute_bulk", "execute_bulk_later", "execute_bulk_returning"):
        _watch(name, lambda given: given.postgresql)
    begin = PostgresqlConnection.begin

    def forgetting(self: PostgresqlConnection) -> None:
        _held[self] = {}
        begin(self)

    setattr(PostgresqlConnection, "begin", forgetting)  # noqa: B010


def _watch(name: str, text: Callable[[Any], str]) -> None:
    method = getattr(PostgresqlConnection, name)

    @functools.wraps(method)
    def watched(self: PostgresqlConnection, given: Any, *arguments: Any) -> Any:
        check(self, text(given))
        return method(self, given, *arguments)

    setattr(PostgresqlConnection, name, watched)
