"""Rows as the text that PostgreSQL's COPY reads: a line for each, its values apart by tabs.

It is put together by columns, in a few calls for all rows: a call for each value of each row took longer than the
database took for the rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import repeat
from typing import Any

NOTHING = r"\N"
_SPECIAL = (("\\", "\\\\"), ("\t", "\\t"), ("\n", "\\n"), ("\r", "\\r"))
"""The backslash first: the others are written with one."""
REPLACEMENT = "\ufffd"
"""Stands where a text has a NUL, of which PostgreSQL has none."""


def block(rows: Sequence[Sequence[Any]]) -> bytes:
    """The lines of at least one row: None, texts, numbers and bytes, as they are written one by one."""
    columns = [_fields(column) for column in zip(*rows, strict=True)]
    return ("\n".join(map("\t".join, zip(*columns, strict=True))) + "\n").encode()


def _fields(column: Sequence[Any]) -> Iterable[str]:
    """The values of one column as they stand in their lines."""
    first, kinds = column[0], set(map(type, column))
    # 0.0 and -0.0 are equal and are not the same.
    if len(kinds) == 1 and (first or kinds != {float}) and column.count(first) == len(column):
        return repeat(_field(first), len(column))
    if kinds == {int} or kinds == {float}:
        return map(repr, column)
    return _texts(column) if kinds == {str} else map(_field, column)


def _field(value: Any) -> str:
    if value is None:
        return NOTHING
    if isinstance(value, str):
        return _escaped(value.replace("\0", REPLACEMENT))
    if isinstance(value, bytes):
        return "\\\\x" + value.hex()
    return str(value)


def _texts(column: Sequence[str]) -> Iterable[str]:
    """As `_field` for each, with one look at all of them."""
    whole = "\0".join(column)
    if whole.count("\0") >= len(column):
        return map(_field, column)
    return _escaped(whole).split("\0") if any(mark in whole for mark, _ in _SPECIAL) else column


def _escaped(text: str) -> str:
    for mark, written in _SPECIAL:
        text = text.replace(mark, written)
    return text
