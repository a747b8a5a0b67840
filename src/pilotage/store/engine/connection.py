"""The interface of database connections: plain SQL, transactions, and bulk statements.

SQL in the store is written once, with `?` for values, in the common subset of SQLite and PostgreSQL. The few
differences are handled here (`in_list`) and in `bulk_statements`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Literal, Protocol

from pilotage.core.errors import Overloaded

if TYPE_CHECKING:
    from pilotage.store.engine.bulk_statements import BulkStatement

Dialect = Literal["sqlite", "postgresql"]


class Cursor(Protocol):
    """The rows that a statement gave, each a tuple."""

    @property
    def rowcount(self) -> int: ...
    @property
    def description(self) -> Sequence[Any] | None: ...
    def __iter__(self) -> Iterator[Any]: ...
    def fetchone(self) -> Any: ...
    def fetchall(self) -> list[Any]: ...


class Connection(Protocol):
    """One connection to one database; of one thread at a time."""

    @property
    def dialect(self) -> Dialect: ...
    @property
    def clock(self) -> Callable[[], float] | None:
        """A clock in place of the database's own; None: there is none."""
        ...

    @property
    def in_transaction(self) -> bool: ...

    def execute(self, sql: str, values: Sequence[Any] = (), /) -> Cursor:
        """Execute one statement with `?` for each of `values`."""
        ...

    def executemany(self, sql: str, rows: Iterable[Sequence[Any]], /) -> Cursor:
        """Execute one statement for each row, in order. Slow: not for the hot path."""
        ...

    def execute_bulk(self, bulk: BulkStatement, rows: Iterable[Sequence[Any]], /) -> int:
        """Execute a bulk statement for all rows; returns the number of changed table rows."""
        ...

    def execute_later(self, sql: str, values: Sequence[Any] = (), /) -> None:
        """Execute a statement without a result.

        In a transaction it may be deferred: it is executed in order, before a later statement returns,
        and by COMMIT at the latest. So a later statement or `commit` may raise its error; then nothing was committed.
        """
        ...

    def execute_bulk_later(self, bulk: BulkStatement, rows: Iterable[Sequence[Any]], /) -> None:
        """Execute a bulk statement without a result, deferred like `execute_later`."""
        ...

    def execute_bulk_returning(
        self, bulk: BulkStatement, rows: Iterable[Sequence[Any]], /
    ) -> list[tuple[Any, ...]]:
        """Execute a bulk statement. Returns the RETURNING values of the changed rows, in no order."""
        ...

    def fetch_batches(self, sql: str, values: Sequence[Any], size: int, /) -> Iterator[list[Any]]:
        """The rows of a query, `size` at a time, without loading all of them."""
        ...

    def begin(self) -> None:
        """Begin a transaction: on a writer's connection one that may write, on a reader's a snapshot.

        A writer's transaction may begin with its first statement, which then raises its errors.
        """
        ...

    def commit(self) -> None: ...

    def rollback(self) -> None:
        """End the open transaction, if there is one; also of a connection that is lost."""
        ...

    def close(self) -> None: ...


class WriterConnection(Connection, Protocol):
    """The connection that writes. A lost connection can be reopened."""

    group: int
    """The approximate maximum of small requests per commit; large requests count more."""
    commits_in_thread: bool
    """Whether another thread may execute COMMIT, since it only waits."""
    clock: Callable[[], float] | None
    first: Callable[[], None] | None
    """Called before each statement while it is set; used only where `commits_in_thread`."""

    @property
    def total_changes(self) -> int | None:
        """The rows that it has changed since it was opened; None: other servers may change rows too."""
        ...

    def bind_to_server(self, server: str) -> None:
        """Allow transactions only while this server has its row; later ones raise `ServerEvicted`."""
        ...

    def renew(self) -> None:
        """Reopen a lost connection. Raises `ConnectionLost` while the database is unreachable."""
        ...

    def was_committed(self) -> bool | None:
        """Whether the transaction whose `commit` raised `ConnectionLost` was committed; None: not known yet."""
        ...

    def caller_error(self, error: BaseException) -> BaseException:
        """The error for the caller: conditions such as a full disk are not reported as bugs."""
        ...


class Readers(Protocol):
    """Connections for reading."""

    def connection(self) -> Connection:
        """The connection of the calling thread."""
        ...

    def close(self) -> None: ...


class ConnectionLost(Overloaded):
    """The connection was lost. Its open transaction was rolled back, but a `commit` may have succeeded."""


class ServerEvicted(Overloaded):
    """The other servers have evicted this server: nothing was changed, and it cannot write again."""


class SerializationFailure(Overloaded):
    """The transaction failed because of another one (deadlock, serialization, same new row).

    Nothing was changed, and the transaction can be retried.
    """


def in_list(connection: Connection, expression: str, given: Sequence[int] | Sequence[str]) -> tuple[str, str]:
    """(condition with one `?`, its value): `expression` is one of `given`, a list of any length."""
    if connection.dialect == "sqlite":
        return f"{expression} IN (SELECT value FROM json_each(?))", json.dumps(list(given))
    kind = "text" if given and isinstance(given[0], str) else "bigint"
    return f"{expression} = ANY (?::{kind}[])", array_literal(given, kind)


MAX_INTEGER = 2**63 - 1
"""The largest integer of a column. A larger sum is stored and told as this."""


def bounded_sum(connection: Connection, column: str) -> str:
    """The sum of a column of integers that are not negative, as SQL: at most MAX_INTEGER, and 0 of no rows.

    SQLite ends a statement whose sum has more than 64 bits. So the upper and lower halves are added apart.
    """
    if connection.dialect != "sqlite":
        return f"least(coalesce(sum({column}), 0), {MAX_INTEGER})::bigint"
    low = f"sum({column} & 4294967295)"
    high = f"(sum({column} >> 32) + ({low} >> 32))"
    whole = f"({high} << 32 | ({low} & 4294967295))"
    return f"coalesce(CASE WHEN {high} > 2147483647 THEN {MAX_INTEGER} ELSE {whole} END, 0)"


def bounded_addition(column: str) -> str:
    """`column` and one parameter, given twice, as SQL: at most MAX_INTEGER. Neither is negative."""
    return f"CASE WHEN {column} > {MAX_INTEGER} - ? THEN {MAX_INTEGER} ELSE {column} + ? END"


def database_time(connection: Connection, now: float) -> float:
    """The time of the database's clock if several servers can use it; else `now`, the process's own time."""
    if connection.clock is not None:
        return connection.clock()
    if connection.dialect == "sqlite":
        return now
    return float(connection.execute("SELECT extract(epoch FROM clock_timestamp())::float8").fetchone()[0])


def lock_clause(connection: Connection, how: str) -> str:
    """The locking clause of a SELECT, for `how` "UPDATE", "SHARE" ...; empty on SQLite, with its only writer."""
    return "" if connection.dialect == "sqlite" else f" FOR {how}"


def lock_in_order(connection: Connection, table: str, condition: str, values: Sequence[Any] = ()) -> None:
    """Lock rows of a table in the order of their ids, as all transactions do, before a bulk change of them.

    An UPDATE of many rows locks them in no order, and could be in a deadlock with another transaction.
    """
    if connection.dialect != "sqlite":
        sql = f"SELECT 1 FROM {table} WHERE {condition} ORDER BY id FOR UPDATE"
        connection.execute(sql, tuple(values)).fetchall()


def lock_name(connection: Connection, name: str) -> None:
    """Wait until no other transaction has the lock of this name, and hold it until the transaction ends.

    For facts that no single row stands for. Later statements see the commits of earlier holders. Nothing on SQLite.
    """
    if connection.dialect != "sqlite":
        connection.execute_later("SELECT pg_advisory_xact_lock(hashtextextended(?, 0))", (name,))


def json_numbers(connection: Connection, column: str) -> str:
    """A subquery for the numbers in a JSON list column of the outer row."""
    if connection.dialect == "sqlite":
        return f"SELECT value FROM json_each({column})"
    return f"SELECT value::bigint FROM json_array_elements_text({column}::json)"


def has_table(connection: Connection, name: str) -> bool:
    """Whether a table exists; for databases of an earlier schema."""
    if connection.dialect == "sqlite":
        sql = "SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = ?"
    else:
        sql = "SELECT 1 WHERE to_regclass(?) IS NOT NULL"
    return connection.execute(sql, (name,)).fetchone() is not None


def array_literal(values: Iterable[Any], kind: str) -> str:
    """The array literal of PostgreSQL for values of one type."""
    if kind == "text":
        return "{" + ",".join(["NULL" if value is None else _quote(value) for value in values]) + "}"
    if kind == "bytea":
        return "{" + ",".join(["NULL" if v is None else f'"\\\\x{v.hex()}"' for v in values]) + "}"
    return "{" + ",".join(map(str, values)).replace("None", "NULL") + "}"


def _quote(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'
