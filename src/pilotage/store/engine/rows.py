"""Rows by the names of their fields. A field is spelled in its type and in the schema, and nowhere else."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection
from dataclasses import fields, is_dataclass
from operator import attrgetter
from typing import Any, TypeVar

Made = TypeVar("Made")


def columns(row: type[Any], prefix: str = "", /, **expressions: str) -> str:
    """The SELECT list of a named tuple or dataclass, in the order of its fields: `Row(*found)` fits.

    `expressions`: the SQL of fields whose column has another name. `prefix`: of the other columns, as in "p.".
    """
    names = _names(row)
    unknown = expressions.keys() - set(names)
    if unknown:
        raise TypeError(f"{row.__name__} has no field {', '.join(sorted(unknown))}")
    return ", ".join(expressions.get(name) or prefix + name for name in names)


def insertion(table: str, listed: str) -> str:
    """The INSERT of one row with these columns of a table."""
    return f"INSERT INTO {table} ({listed}) VALUES ({', '.join('?' * len(listed.split(', ')))})"


def replacement(table: str, key: str, changed: Collection[str]) -> str:
    """The INSERT of one row with this key, or the UPDATE of the changed columns if the row is there."""
    changes = ", ".join(f"{column} = excluded.{column}" for column in changed)
    return f"{insertion(table, ', '.join((key, *changed)))} ON CONFLICT ({key}) DO UPDATE SET {changes}"


def values(row: Any) -> list[Any]:
    """The values of a row in the order of `columns`, as the store keeps them: tuples as JSON, truths as 0 or 1."""
    return [
        json.dumps(value) if isinstance(value, tuple) else int(value) if isinstance(value, bool) else value
        for value in _reader(type(row))(row)
    ]


def from_row(kind: type[Made]) -> Callable[[Any], Made]:
    """A function that makes an object of a row with its fields, in any order and among others."""
    read = _reader(kind)
    return lambda row: kind(*read(row))


def _reader(kind: type[Any]) -> Callable[[Any], tuple[Any, ...]]:
    return attrgetter(*_names(kind))


def _names(row: type[Any]) -> list[str]:
    return [field.name for field in fields(row)] if is_dataclass(row) else list(row._fields)
