"""Rows as the text that PostgreSQL's COPY reads: a line for each, its values apart by tabs.

It is put together by columns, in a few calls for all rows: a call for each value of each row took longer than the
database took for the rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import repeat
from typing import Any

NULL = r"\N"
_SPECIAL = (("\\", "\\\\"), ("\t", "\\t"), ("\n", "\\n"), ("\r", "\\r"))
"""The backslash first: the others are written with one."""
REPLACEMENT = "\ufffd"
"""Stands where a text has a NUL, of which PostgreSQL has none."""


def encode_rows(rows: Sequence[Sequence[Any]]) -> bytes:
    """The lines of at least one row: None, texts, numbers and bytes, as they are written one by one."""
    columns = [_encode_column(column) for column in zip(*rows, strict=True)]
    return ("\n".join(map("\t".join, zip(*columns, strict=True))) + "\n").encode()


def _encode_column(column: Sequence[Any]) -> Iterable[str]:
    """The values of one column as they stand in their lines."""
    first, kinds = column[0], set(map(type, column))
    # 0.0 and -0.0 are equal and are not the same.
    if len(kinds) == 1 and (first or kinds != {float}) and column.count(first) == len(column):
        return repeat(_encode_value(first), len(column))
    if kinds == {int} or kinds == {float}:
        return map(repr, column)
    return _encode_texts(column) if kinds == {str} else map(_encode_value, column)


def _encode_value(value: Any) -> str:
    if value is None:
        return NULL
    if isinstance(value, str):
        return _escape(value.replace("\0", REPLACEMENT))
    if isinstance(value, bytes):
        return "\\\\x" + value.hex()
    return str(value)


def _encode_texts(column: Sequence[str]) -> Iterable[str]:
    """The texts as `_encode_value` writes them, with one look at all of them."""
    whole = "\0".join(column)
    if whole.count("\0") >= len(column):
        return map(_encode_value, column)
    return _escape(whole).split("\0") if any(mark in whole for mark, _ in _SPECIAL) else column


def _escape(text: str) -> str:
    for mark, written in _SPECIAL:
        text = text.replace(mark, written)
    return text
