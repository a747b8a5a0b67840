"""What every database connection can do: plain SQL, transactions, many rows with one call.

SQL in the store is written once, with `?` for values, in what SQLite and PostgreSQL have in common. The few things
that they say differently are here (`in_list`) and in `bulk`; nothing else asks for the `dialect`.
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
    def in_transaction(self) -> bool: ...

    def execute(self, sql: str, values: Sequence[Any] = (), /) -> Cursor:
        """Carry out one statement with `?` for each of `values`."""
        ...

    def executemany(self, sql: str, rows: Iterable[Sequence[Any]], /) -> Cursor:
        """Carry out one statement for each row, in order; for what is not hot."""
        ...

    def execute_bulk(self, bulk: BulkStatement, rows: Iterable[Sequence[Any]], /) -> int:
        """Carry out a bulk statement for all rows; how many rows of the table it has changed."""
        ...

    def execute_later(self, sql: str, values: Sequence[Any] = (), /) -> None:
        """As `execute`, of a statement whose result nobody reads.

        In a transaction it may wait: it is carried out in order, before the result of any later statement is seen,
        and with COMMIT at the latest. So its error may come out of a later statement, or of `commit`; then nothing was
        committed.
        """
        ...

    def execute_bulk_later(self, bulk: BulkStatement, rows: Iterable[Sequence[Any]], /) -> None:
        """As `save`, where nobody asks how many rows were changed; when, see `execute_later`."""
        ...

    def execute_bulk_returning(
        self, bulk: BulkStatement, rows: Iterable[Sequence[Any]], /
    ) -> list[tuple[Any, ...]]:
        """As `save`; what the statement's RETURNING gave for the rows that were changed, in no order."""
        ...

    def fetch_batches(self, sql: str, values: Sequence[Any], size: int, /) -> Iterator[list[Any]]:
        """The rows of a query, `size` at a time, without holding all of them."""
        ...

    def begin(self) -> None:
        """Begin a transaction: on a writer's connection one that may write, on a reader's a snapshot.

        A writer's may begin with its first statement; what hinders it is told then.
        """
        ...

    def commit(self) -> None: ...

    def rollback(self) -> None:
        """End the open transaction, if there is one; also of a connection that is lost."""
        ...

    def close(self) -> None: ...


class WriterConnection(Connection, Protocol):
    """The connection that writes. It can be lost, and be made again."""

    group: int
    """About so many small requests share a commit, or fewer that are large."""
    commits_in_thread: bool
    """Whether a COMMIT may be carried out by another thread, since it is nothing but waiting."""
    first: Callable[[], None] | None
    """Called before each statement while it is set; used only where `commits_in_thread`."""

    def bind_to_server(self, server: str) -> None:
        """From now on carry out a transaction only while this server has its row: others raise `ServerEvicted`."""
        ...

    def renew(self) -> None:
        """Make a lost connection again. Raises `ConnectionLost` while that cannot be done."""
        ...

    def was_committed(self) -> bool | None:
        """Whether the transaction whose `commit` raised `ConnectionLost` was committed; None: not known yet."""
        ...

    def caller_error(self, error: BaseException) -> BaseException:
        """The error that a caller is told: a full disk and the like are no bugs."""
        ...


class Readers(Protocol):
    """Connections for reading."""

    def connection(self) -> Connection:
        """That of the calling thread."""
        ...

    def close(self) -> None: ...


class ConnectionLost(Overloaded):
    """The connection has ended. Nothing of its open transaction is kept, but a `commit` may have been carried out."""


class ServerEvicted(Overloaded):
    """The other servers of the database have taken the place of this one: nothing was changed, and will be by it."""


class SerializationFailure(Overloaded):
    """The transaction lost against another one (deadlock, serialization, the same new row).

    Nothing was changed, it can be repeated.
    """


def in_list(connection: Connection, expression: str, given: Sequence[int] | Sequence[str]) -> tuple[str, str]:
    """(condition with one `?`, its value): whether `expression` is one of `given`, however many there are."""
    if connection.dialect == "sqlite":
        return f"{expression} IN (SELECT value FROM json_each(?))", json.dumps(list(given))
    kind = "text" if given and isinstance(given[0], str) else "bigint"
    return f"{expression} = ANY (?::{kind}[])", array_literal(given, kind)


def database_time(connection: Connection, now: float) -> float:
    """The giver's clock: that of the database where several servers use it, else `now`, the one process's own."""
    if connection.dialect == "sqlite":
        return now
    return float(connection.execute("SELECT extract(epoch FROM clock_timestamp())::float8").fetchone()[0])


def lock_clause(connection: Connection, how: str) -> str:
    """The end of a SELECT that locks its rows; SQLite has one writer, who needs none. `how`: "UPDATE", "SHARE" ..."""
    return "" if connection.dialect == "sqlite" else f" FOR {how}"


def json_numbers(connection: Connection, column: str) -> str:
    """A query for the numbers in a JSON list of a row around it."""
    if connection.dialect == "sqlite":
        return f"SELECT value FROM json_each({column})"
    return f"SELECT value::bigint FROM json_array_elements_text({column}::json)"


def has_table(connection: Connection, name: str) -> bool:
    """Whether there is a table of this name; for databases of an earlier schema."""
    if connection.dialect == "sqlite":
        sql = "SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = ?"
    else:
        sql = "SELECT 1 WHERE to_regclass(?) IS NOT NULL"
    return connection.execute(sql, (name,)).fetchone() is not None


def array_literal(values: Iterable[Any], kind: str) -> str:
    """Values of one type as PostgreSQL writes an array."""
    if kind == "text":
        return "{" + ",".join(["NULL" if value is None else _quote(value) for value in values]) + "}"
    if kind == "bytea":
        return "{" + ",".join(["NULL" if v is None else f'"\\\\x{v.hex()}"' for v in values]) + "}"
    return "{" + ",".join(map(str, values)).replace("None", "NULL") + "}"


def _quote(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'
