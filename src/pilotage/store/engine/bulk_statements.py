"""Statements that save many rows: one prepared statement on SQLite, one statement with arrays on PostgreSQL.

Both texts are built once from one template, in which `{name}` stands for a value of the row. Its type is the type of
the column with this name, unless given.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import sqlalchemy as sa

from pilotage.store.schema import metadata

if TYPE_CHECKING:
    from pilotage.store.engine.connection import Connection

Row = Sequence[Any]
TypedRow = TypeVar("TypedRow", bound=Row)

_TYPES: tuple[tuple[type[sa.types.TypeEngine[Any]], str], ...] = (
    (sa.BigInteger, "bigint"),
    (sa.SmallInteger, "smallint"),
    (sa.Integer, "integer"),
    (sa.Float, "double precision"),
    (sa.Text, "text"),
    (sa.LargeBinary, "bytea"),
)
_NAME = re.compile(r"\{(\w+)\}")


@dataclass(frozen=True, slots=True)
class BulkStatement:
    """Made by `insert`, `update` and `delete`."""

    sqlite: str
    postgresql: str
    types: tuple[str, ...]
    """PostgreSQL's, of a row's values in order."""
    returning: str
    """The RETURNING clause, appended to either text to return rows."""
    copy: str
    """The equivalent COPY statement; empty: there is none."""
    _key: Callable[[Row], Any] | None
    _arranged: Callable[[Row], Row] | None

    def arranged(self, rows: Sequence[Row]) -> Sequence[Row]:
        """The rows with their values as SQLite's text names them."""
        return rows if self._arranged is None else [self._arranged(row) for row in rows]

    def passes(self, rows: Sequence[Row]) -> Iterator[Sequence[Row]]:
        """Split the rows into parts without two changes of the same table row.

        PostgreSQL would apply an arbitrary one; with parts the last one wins, as on SQLite.
        """
        key = self._key
        if key is None or len(rows) == 1 or len(set(map(key, rows))) == len(rows):
            yield rows
            return
        part: list[Row] = []
        seen: set[Any] = set()
        for row in rows:
            name = key(row)
            if name in seen:
                yield part
                part, seen = [], set()
            seen.add(name)
            part.append(row)
        yield part


class RowWriter(Generic[TypedRow]):
    """A function that writes rows of one type with one bulk statement, see `Connection.execute_bulk_later`."""

    __slots__ = ("_statement",)

    def __init__(self, statement: BulkStatement) -> None:
        self._statement = statement

    def __call__(self, connection: Connection, rows: Iterable[TypedRow]) -> None:
        connection.execute_bulk_later(self._statement, rows)


def insert(
    table: str,
    columns: Sequence[str],
    *,
    conflict: Sequence[str] = (),
    otherwise: str = "",
    returning: str = "",
) -> BulkStatement:
    """INSERT rows. `otherwise` is the action for an existing row with the same `conflict` columns, which are unique.

    "NOTHING" keeps the existing row, "UPDATE" replaces its other columns, "ADD" adds to them.
    """
    ending = ""
    if otherwise == "NOTHING":
        ending = f" ON CONFLICT ({', '.join(conflict)}) DO NOTHING"
    elif otherwise in ("UPDATE", "ADD"):
        before = f"{table}.{{0}} + " if otherwise == "ADD" else ""
        others = (column for column in columns if column not in conflict)
        changes = ", ".join(f"{column} = {before.format(column)}excluded.{column}" for column in others)
        ending = f" ON CONFLICT ({', '.join(conflict)}) DO UPDATE SET {changes}"
    back = f" RETURNING {returning}" if returning else ""
    types = _column_types(table, columns, {})
    head = f"INSERT INTO {table} ({', '.join(columns)})"
    return BulkStatement(
        sqlite=f"{head} VALUES ({', '.join('?' * len(columns))}){ending}",
        postgresql=f"{head} SELECT * FROM {_unnest(types)}{ending}",
        types=types,
        returning=back,
        copy=f"COPY {table} ({', '.join(columns)}) FROM STDIN" if not ending else "",
        _key=_key_getter([columns.index(name) for name in conflict]) if conflict else None,
        _arranged=None,
    )


def update(
    table: str, columns: Sequence[str], change: str, where: str, *, returning: str = "", **types: str
) -> BulkStatement:
    """UPDATE `table` SET `change` WHERE `where`, for each row; `columns` name the values of a row.

    Within `returning`, columns of the table are meant. `types`: PostgreSQL types of values without a column.
    """
    text = f"UPDATE {table} SET {change}", f" WHERE {where}", returning
    return _build_change(table, columns, text, " FROM ", where, types)


def delete(
    table: str, columns: Sequence[str], where: str, *, returning: str = "", **types: str
) -> BulkStatement:
    """DELETE FROM `table` WHERE `where`, for each row."""
    return _build_change(
        table, columns, (f"DELETE FROM {table}", f" WHERE {where}", returning), " USING ", where, types
    )


def _build_change(
    table: str,
    columns: Sequence[str],
    text: tuple[str, str, str],
    joined: str,
    where: str,
    given: dict[str, str],
) -> BulkStatement:
    head, tail, returning = text
    back = f" RETURNING {returning}" if returning else ""
    types = _column_types(table, columns, given)
    places = {name: place for place, name in enumerate(columns)}
    named = [places[name] for name in _NAME.findall(head + tail)]
    in_order = named == list(range(len(columns)))
    values = {name: f"given.v{place}" for name, place in places.items()}
    return BulkStatement(
        sqlite=_NAME.sub("?", head + tail),
        postgresql=f"{head.format(**values)}{joined}{_unnest(types)}{tail.format(**values)}",
        types=types,
        returning=back,
        copy="",
        _key=_key_getter([places[name] for name in dict.fromkeys(_NAME.findall(where))]),
        _arranged=None if in_order else _reorder(named),
    )


def _column_types(table: str, columns: Sequence[str], given: dict[str, str]) -> tuple[str, ...]:
    known = metadata.tables[table].c
    return tuple(given.get(name) or _array_type(known[name].type) for name in columns)


def _array_type(column: sa.types.TypeEngine[Any]) -> str:
    for kind, name in _TYPES:
        if isinstance(column, kind):
            return name
    raise TypeError(f"no PostgreSQL array is known for {column!r}")


def _unnest(types: Sequence[str]) -> str:
    arrays = ", ".join(f"${place}::{kind}[]" for place, kind in enumerate(types, 1))
    names = ", ".join(f"v{place}" for place in range(len(types)))
    return f"unnest({arrays}) AS given({names})"


def _key_getter(places: Sequence[int]) -> Callable[[Row], Any]:
    return itemgetter(*places)


def _reorder(places: Sequence[int]) -> Callable[[Row], Row]:
    if len(places) == 1:
        return lambda row: (row[places[0]],)
    return itemgetter(*places)
